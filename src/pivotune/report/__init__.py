"""The report: plain figures in, one self-contained page out."""

"""The controlled study: base models from known mixtures, the demo, reproduction tables."""

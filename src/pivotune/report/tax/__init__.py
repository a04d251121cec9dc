"""What more tries still buy: the Sharpening Tax as sentences, tables and drawings."""

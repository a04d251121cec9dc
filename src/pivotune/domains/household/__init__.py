"""Household: ALFWorld games, played by our own engine, with an exact oracle."""

"""Reasoning problems with exact checkers: reasoning-gym (optional extra `reasoning`)."""

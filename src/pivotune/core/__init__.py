"""Contracts and files that every other room stands on: standard library, numpy and msgspec only."""

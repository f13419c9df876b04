"""Attacks on what is promised of files, faults and signals; `python -m attacks` runs them."""

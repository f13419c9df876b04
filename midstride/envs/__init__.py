"""Gymnasium: what vector environments share, and everybody else's environments."""

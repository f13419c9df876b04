"""Sweeps: one training for every draw of hyperparameters and every arm, in one table."""

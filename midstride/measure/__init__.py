"""Policies measured: evaluation, and all intervals."""

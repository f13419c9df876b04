"""What others do about latency, each in a file with its equation: docs/baselines.md.

All are trained by name, as our own agents are (`learn/agents.py`), on what our own are trained on.
"""

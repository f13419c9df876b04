"""Attacks on what midstride promises: that nothing is lost, and that nobody is let in.

`python -m attacks` (or `make attack`) kills trainings and sweeps at random moments and inside of
writes, fills the disk at every write, sends every signal, mutates every kind of file that is read,
and trains in environments that are broken in every way. What came of it is in results/reliability.
"""

"""Grasping: a 7-DoF arm over a bin of objects, seen by a camera."""

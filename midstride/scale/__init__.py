"""Many trainings at once: processes here, Ray elsewhere."""

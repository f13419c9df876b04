"""Every test repeats exactly: hypothesis draws from a fixed seed, and so does everything else."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "midstride",
    deadline=None,
    derandomize=True,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("midstride")

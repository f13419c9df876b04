"""Every test repeats exactly: hypothesis draws from a fixed seed, and so does everything else."""

from hypothesis import HealthCheck, settings

from midstride.learn.agent import configure_jax

# Before anything computes: XLA in this process and in workers must be set up alike, or numbers
# that should agree to the last bit do not.
configure_jax()

settings.register_profile(
    "midstride",
    deadline=None,
    derandomize=True,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("midstride")

"""Images changed at random in updates, so that a network does not learn them by heart."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from midstride.learn.shard import WHOLE, Shard


def shifted(image: Any, key: Any, most: int, shard: Shard = WHOLE) -> Any:
    """Images (n, size, size, 3 x frames), each moved by up to `most` pixels; edges are repeated.

    shard: of a batch, that the images are
    """
    n, size = image.shape[:2]
    moved = jax.random.randint(key, (2, shard.of_all(n), 1), -most, most + 1)
    moved = shard.rows(moved, axis=1)
    rows, columns = jnp.clip(jnp.arange(size) + moved, 0, size - 1)
    frames = jnp.split(image, image.shape[-1] // 3, axis=-1)  # moved together
    return jnp.concatenate([_gathered(frame, rows, columns) for frame in frames], axis=-1)


def _gathered(image: Any, rows: Any, columns: Any) -> Any:
    # A pixel as one number: gathers go by numbers, and are slow.
    pixel = jnp.pad(image, ((0, 0), (0, 0), (0, 0), (0, 1)))
    pixel = jax.lax.bitcast_convert_type(pixel, jnp.uint32)
    pixel = jnp.take_along_axis(pixel, rows[:, :, None], axis=1)
    pixel = jnp.take_along_axis(pixel, columns[:, None, :], axis=2)
    return jax.lax.bitcast_convert_type(pixel, jnp.uint8)[..., :3]


def tinted(image: Any, key: Any, most: float, shard: Shard = WHOLE) -> Any:
    """Images (n, size, size, channels) with each channel scaled by up to 1 +- `most`."""
    shape = (shard.of_all(len(image)), 1, 1, image.shape[-1])
    factor = 1 + most * shard.rows(jax.random.uniform(key, shape, minval=-1, maxval=1))
    return jnp.clip(image * factor, 0, 255)

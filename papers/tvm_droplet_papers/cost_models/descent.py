# SPDX-License-Identifier: Apache-2.0

"""The training of networks in JAX, which must be installed: steps, losses, dropout. Imports no TVM.

A loss takes the scores, the throughputs and a mask, each of shape ``(groups, programs)``. The mask
is 1 for a program and 0 for padding. The programs of a group belong to one workload.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

DECAY = 1e-2
"""Weight decay; biases do not decay."""

_CLIP = 1.0
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8

Parameters = dict[str, Any]

State = tuple[Parameters, Parameters, Parameters]
"""The parameters and their two moments."""


def begin(shapes: Mapping[str, tuple[int, ...]], generator: np.random.Generator) -> Parameters:
    """Draw weights uniformly within the inverse square root of the fan-in; set biases to 0."""
    learned = {}
    for name, shape in shapes.items():
        bound = shape[0] ** -0.5 if len(shape) > 1 else 0.0
        learned[name] = generator.uniform(-bound, bound, shape).astype(np.float32)
    return learned


def without_moments(learned: Parameters) -> State:
    """The state before the first step, with moments of 0."""
    first, second = ({name: np.zeros_like(value) for name, value in learned.items()} for _ in "12")
    return learned, first, second


def cosine(rate: float, steps: int) -> np.ndarray:
    """The learning rate of each step, with cosine decay to 0."""
    return np.asarray(0.5 * rate * (1.0 + np.cos(np.pi * np.arange(steps) / steps)))


def dropped(shape: tuple[int, int], share: float, generator: np.random.Generator) -> np.ndarray:
    """The dropout factor of each number of the programs' last states."""
    kept = generator.random(shape, dtype=np.float32) >= share
    return np.asarray(kept / np.float32(1.0 - share), dtype=np.float32)


def standard(rows: np.ndarray, name: str = "") -> dict[str, np.ndarray]:
    """The mean and the scale of each column; the scale of a constant column is 1."""
    # Use float64, in which a constant column has no deviation.
    values = rows.astype(float) if len(rows) else np.zeros((1, rows.shape[-1]))
    scale = values.std(axis=0)
    scale[scale < 1e-6] = 1.0
    mean = values.mean(axis=0).astype("f4")
    return {f"{name}mean": mean, f"{name}scale": scale.astype("f4")}


def adamw(state: State, gradients: Parameters, rate: Any, number: Any) -> State:
    """One step of AdamW (Loshchilov and Hutter, 2019), with gradients clipped to norm 1.

    ``state``: the parameters and their moments. ``number``: the number of the step, from 1. Returns
    the state after the step.
    """
    learned, first, second = state
    norm = jnp.sqrt(sum(jnp.sum(value**2) for value in gradients.values()))
    scale = jnp.minimum(1.0, _CLIP / (norm + 1e-6))
    updated: State = ({}, {}, {})
    for name, value in learned.items():
        gradient = gradients[name] * scale
        updated[1][name] = _BETA_1 * first[name] + (1.0 - _BETA_1) * gradient
        updated[2][name] = _BETA_2 * second[name] + (1.0 - _BETA_2) * gradient**2
        mean = updated[1][name] / (1.0 - _BETA_1**number)
        square = updated[2][name] / (1.0 - _BETA_2**number)
        decay = DECAY if value.ndim > 1 else 0.0
        updated[0][name] = value * (1.0 - rate * decay) - rate * mean / (
            jnp.sqrt(square) + _EPSILON
        )
    return updated


_GAIN = 5.0
"""The LambdaRank gain of a program is ``2 ** (_GAIN * throughput) - 1``: relevance from 0 to 5, as
search engines grade pages."""


def squared_error(scores: Any, expected: Any, present: Any) -> Any:
    """The mean squared error of the programs."""
    return jnp.sum((scores - expected) ** 2 * present) / jnp.sum(present)


def _pairs(scores: Any, expected: Any, present: Any) -> tuple[Any, Any]:
    """The logistic loss of each pair of a group, and a mask of pairs with unlike throughputs."""
    sign = jnp.sign(expected[:, :, None] - expected[:, None, :])
    margin = scores[:, :, None] - scores[:, None, :]
    unlike = jnp.abs(sign) * present[:, :, None] * present[:, None, :]
    return jax.nn.softplus(-sign * margin), unlike


def logistic_pairs(scores: Any, expected: Any, present: Any) -> Any:
    """The mean logistic loss of a group's pairs with unlike throughputs, averaged over groups."""
    losses, unlike = _pairs(scores, expected, present)
    pairs = unlike.sum(axis=(1, 2))
    losses = (losses * unlike).sum(axis=(1, 2))
    return jnp.sum(losses / jnp.maximum(pairs, 1.0)) / jnp.sum(present[:, 0])


def lambda_rank(scores: Any, expected: Any, present: Any) -> Any:
    """LambdaRank (Burges, 2010): the logistic loss of each pair, weighted by the effect of a swap.

    The weight is the change of the group's discounted cumulative gain when the pair is swapped, so
    that pairs of fast programs count most. The loss is the weighted mean over pairs with unlike
    throughputs, averaged over the nonempty groups.
    """
    hidden = jnp.where(present > 0, scores, -jnp.inf)
    ranks = jnp.argsort(jnp.argsort(-hidden, axis=1), axis=1)
    discount = 1.0 / jnp.log2(2.0 + ranks)
    gain = 2.0 ** (_GAIN * expected) - 1.0
    change = jnp.abs(gain[:, :, None] - gain[:, None, :])
    change = change * jnp.abs(discount[:, :, None] - discount[:, None, :])
    losses, unlike = _pairs(scores, expected, present)
    weights = change * unlike
    of_groups = (losses * weights).sum(axis=(1, 2)) / jnp.maximum(weights.sum(axis=(1, 2)), 1e-9)
    return jnp.sum(of_groups) / jnp.sum(present[:, 0])

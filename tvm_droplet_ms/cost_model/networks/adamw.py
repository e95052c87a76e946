# SPDX-License-Identifier: Apache-2.0

"""AdamW on the parameters of a network, in JAX, which must be installed. Imports no TVM."""

from typing import Any

import jax.numpy as jnp

DECAY = 1e-2
"""Decay of the weights; the biases do not decay."""

_CLIP = 1.0
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8

Parameters = dict[str, Any]

State = tuple[Parameters, Parameters, Parameters]
"""The parameters and their two moments."""


def adamw(state: State, gradients: Parameters, rate: Any, number: Any) -> State:
    """One step of AdamW (Loshchilov and Hutter, 2019), with gradients of at most norm 1.

    ``state``: the parameters and their moments. ``number``: the number of the step, from 1. Returns
    after the step.
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

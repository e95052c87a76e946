# SPDX-License-Identifier: Apache-2.0

"""Losses of groups of programs of one workload, in JAX, which must be installed. Imports no TVM.

Each takes the scores and the throughputs of the programs of some groups, of shape
``(groups, programs)``, and 1 for a program and 0 for padding, of the same shape.
"""

from typing import Any

import jax
import jax.numpy as jnp

_GAIN = 5.0
"""The gain of a program in LambdaRank is 2 to this times its relative throughput, less 1: relevance
from 0 to 5, as search engines grade pages."""


def squared_error(scores: Any, expected: Any, present: Any) -> Any:
    """The mean squared error of the programs."""
    return jnp.sum((scores - expected) ** 2 * present) / jnp.sum(present)


def logistic_pairs(scores: Any, expected: Any, present: Any) -> Any:
    """The logistic loss of the unlike pairs of a group, the mean of the groups."""
    sign = jnp.sign(expected[:, :, None] - expected[:, None, :])
    sign = sign * present[:, :, None] * present[:, None, :]
    margin = scores[:, :, None] - scores[:, None, :]
    pairs = jnp.abs(sign).sum(axis=(1, 2))
    losses = (jax.nn.softplus(-sign * margin) * jnp.abs(sign)).sum(axis=(1, 2))
    return jnp.sum(losses / jnp.maximum(pairs, 1.0)) / jnp.sum(present[:, 0])


def lambda_rank(scores: Any, expected: Any, present: Any) -> Any:
    """LambdaRank (Burges, 2010): the logistic loss of each pair, by what swapping it would change.

    That is the change of the group's discounted cumulative gain, so that pairs of fast programs
    count most.
    The loss is the mean over the groups that are not empty of the weighted mean over unlike pairs.
    """
    hidden = jnp.where(present > 0, scores, -jnp.inf)
    ranks = jnp.argsort(jnp.argsort(-hidden, axis=1), axis=1)
    discount = 1.0 / jnp.log2(2.0 + ranks)
    gain = 2.0 ** (_GAIN * expected) - 1.0
    change = jnp.abs(gain[:, :, None] - gain[:, None, :])
    change = change * jnp.abs(discount[:, :, None] - discount[:, None, :])
    sign = jnp.sign(expected[:, :, None] - expected[:, None, :])
    weights = change * jnp.abs(sign) * present[:, :, None] * present[:, None, :]
    margin = scores[:, :, None] - scores[:, None, :]
    losses = (jax.nn.softplus(-sign * margin) * weights).sum(axis=(1, 2))
    of_groups = losses / jnp.maximum(weights.sum(axis=(1, 2)), 1e-9)
    return jnp.sum(of_groups) / jnp.sum(present[:, 0])

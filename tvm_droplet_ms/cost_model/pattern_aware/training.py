# SPDX-License-Identifier: Apache-2.0

"""Trains a PaCM with JAX. Imports no TVM."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..boosted_trees import Objective
from ..networks import groups
from .dataflow import LEVELS
from .network import HIDDEN, shapes, split, states

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise ImportError(
        "training a PaCM needs JAX, which is not installed: pip install 'tvm-droplet-ms[pacm]'"
    ) from error

from ..networks.descent import (
    Parameters,
    State,
    adamw,
    begin,
    cosine,
    dropped,
    lambda_rank,
    logistic_pairs,
    squared_error,
    standard,
    without_moments,
)

EPOCHS = 12
"""Passes over the programs, as many as for a TreeGRU."""

MIN_STEPS = 240
"""Minimum number of steps, for small training sets."""

_RATE, _DROPOUT = 3e-3, 0.3
"""With these, LambdaRank plus the logistic loss orders 0.781 of the pairs of six held-out spaces,
and LambdaRank alone orders 0.745 (2026-11-24, commit df68055)."""


def train(
    features: np.ndarray,
    throughput: np.ndarray,
    workloads: np.ndarray,
    *,
    objective: Objective,
    seed: int,
) -> dict[str, np.ndarray]:
    """Train a network with AdamW and cosine learning rate decay to 0.

    - ``features``: the input of ``network.split``, of shape ``(programs, width)``, at least one.
    - ``throughput``: relative to the best of the workload, of shape ``(programs,)``.
    - ``workloads``: the workload index of each program, of the same shape. All workloads have equal
      weight.
    - ``objective``: "rank" or "regression".
    - ``seed``: the same seed makes the same parameters.

    Returns the parameters of ``network.shapes``, and the means and scales of the inputs, float32.
    """
    generator = np.random.default_rng(seed)
    fixed = _standard(features)
    members = groups.members_of(workloads)
    steps = list(groups.steps(members, groups.epochs(members, EPOCHS, MIN_STEPS), generator))
    learned = begin(shapes(len(fixed["statement_mean"])), generator)
    data, rates = (features, throughput), cosine(_RATE, len(steps))
    return _descend(learned, fixed, data, steps, rates, objective, generator)


def fine_tune(
    parameters: Mapping[str, np.ndarray],
    features: np.ndarray,
    throughput: np.ndarray,
    workloads: np.ndarray,
    *,
    objective: Objective,
    seed: int,
    steps: int,
    rate: float,
) -> dict[str, np.ndarray]:
    """Train a network further, on few programs, at a constant learning rate.

    The means and scales of the inputs stay fixed: recomputing them from few programs would change
    the meaning of the weights.

    - ``parameters``: the parameters that ``train`` returns.
    - ``features``, ``throughput``, ``workloads``: as in ``train``.
    - ``objective``: "rank" or "regression".
    - ``seed``: seed of the order of the programs and of dropout.
    - ``steps``: number of steps.

    Returns parameters of the same names; the given parameters are unchanged.
    """
    generator = np.random.default_rng(seed)
    fixed = {name: parameters[name] for name in _standard(features[:1])}
    learned = {name: value for name, value in parameters.items() if name not in fixed}
    members = groups.members_of(workloads)
    drawn = list(groups.steps(members, groups.epochs(members, 1, steps), generator))[:steps]
    data = features, throughput
    return _descend(learned, fixed, data, drawn, np.full(len(drawn), rate), objective, generator)


def _descend(
    learned: Parameters,
    fixed: Mapping[str, np.ndarray],
    data: tuple[np.ndarray, np.ndarray],
    steps: Sequence[list[np.ndarray]],
    rates: np.ndarray,
    objective: Objective,
    generator: np.random.Generator,
) -> dict[str, np.ndarray]:
    features, throughput = data
    state = without_moments(learned)
    for number, (step, rate) in enumerate(zip(steps, rates, strict=True), start=1):
        # A step is compiled for a fixed number of programs: one group, or all groups of a step.
        room = groups.GROUP if len(step) == 1 else groups.PROGRAMS
        padded = np.zeros((room, features.shape[1]), dtype=np.float32)
        rows = np.concatenate(step)
        padded[: len(rows)] = features[rows]
        state = _step(
            state,
            dict(fixed),
            *split(padded),
            dropped((room, HIDDEN), _DROPOUT, generator),
            *groups.targets(throughput, step),
            np.float32(rate),
            np.float32(number),
            objective=objective,
        )
    return {name: np.array(value) for name, value in state[0].items()} | dict(fixed)


def _standard(features: np.ndarray) -> dict[str, np.ndarray]:
    """The means and the standard deviations of the inputs over the nonempty rows."""
    tokens, statements = split(features)
    present = tokens[tokens[:, :, : len(LEVELS)].any(axis=2)]
    computed = statements[statements[:, :, 0] > 0]
    return standard(present, "token_") | standard(computed, "statement_")


@partial(jax.jit, static_argnames=("objective",))
def _step(
    state: State,
    fixed: Parameters,
    tokens: Any,
    statements: Any,
    dropped: Any,
    expected: Any,
    places: Any,
    present: Any,
    rate: Any,
    number: Any,
    *,
    objective: Objective,
) -> State:
    """One step of AdamW on the parameters and their two moments."""

    def loss(learned: Parameters) -> Any:
        kept = states(learned | fixed, tokens, statements, jnp) * dropped
        scores = (kept @ learned["output"] + learned["output_bias"])[:, 0][places]
        return _LOSSES[objective](scores, expected, present)

    return adamw(state, jax.grad(loss)(state[0]), rate, number)


def _ranking(scores: Any, expected: Any, present: Any) -> Any:
    """LambdaRank, which nearly ignores slow programs, plus the loss that weights pairs equally."""
    return lambda_rank(scores, expected, present) + logistic_pairs(scores, expected, present)


_LOSSES: dict[Objective, Callable[[Any, Any, Any], Any]] = {
    "rank": _ranking,
    "regression": squared_error,
}

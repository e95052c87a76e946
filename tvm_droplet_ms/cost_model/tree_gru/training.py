# SPDX-License-Identifier: Apache-2.0
"""Trains a TreeGRU with JAX. Imports no TVM.

JAX compiles a step for fixed shapes, so the trees of a step are padded: each level has room for the
maximum number of nodes in any step. Padding does not change any sum.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ..boosted_trees import Objective
from ..networks import groups
from .loop_tree import WIDTH
from .network import SHAPES, memory
from .tree_batch import Level, TreeBatch, node_depths

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise ImportError(
        "training a TreeGRU needs JAX, which is not installed: "
        "pip install 'tvm-droplet-ms[treegru]'"
    ) from error

from ..networks.descent import (
    Parameters,
    State,
    adamw,
    begin,
    cosine,
    dropped,
    logistic_pairs,
    squared_error,
    standard,
    without_moments,
)

EPOCHS = 12
"""Passes over the programs. At this point the accuracy on held-out workloads has stopped rising but
has not begun to fall."""

MIN_STEPS = 240
"""Minimum number of steps, for small training sets."""

_RATE, _DROPOUT = 3e-3, 0.2


def train(
    features: np.ndarray,
    throughput: np.ndarray,
    workloads: np.ndarray,
    *,
    objective: Objective,
    seed: int,
) -> dict[str, np.ndarray]:
    """Train a network with AdamW and cosine learning rate decay to 0.

    - ``features``: outputs of ``loop_tree``, of shape ``(programs, TREE_FEATURES)``, at least one.
    - ``throughput``: relative to the best of the workload, of shape ``(programs,)``.
    - ``workloads``: the workload index of each program, of the same shape. All workloads have equal
      weight.
    - ``objective``: "rank" or "regression".
    - ``seed``: the same seed makes the same parameters.

    Returns the parameters of ``network.SHAPES``, and the mean and scale of the contexts, float32.
    """
    generator = np.random.default_rng(seed)
    members = groups.members_of(workloads)
    fixed = standard(TreeBatch.from_features(features).contexts)
    learned = begin(SHAPES, generator)
    steps = list(groups.steps(members, groups.epochs(members, EPOCHS, MIN_STEPS), generator))
    room = _room(features, steps)
    state = without_moments(learned)
    for number, (step, rate) in enumerate(zip(steps, cosine(_RATE, len(steps)), strict=True), 1):
        trees = _padded(features[np.concatenate(step)], room)
        state = _step(
            state,
            fixed,
            trees,
            dropped((groups.PROGRAMS, SHAPES["output"][0]), _DROPOUT, generator),
            *groups.targets(throughput, step),
            np.float32(rate),
            np.float32(number),
            room=room,
            objective=objective,
        )
    return {name: np.array(value) for name, value in state[0].items()} | fixed


def _room(features: np.ndarray, steps: Sequence[Sequence[np.ndarray]]) -> tuple[int, ...]:
    """The padded number of nodes at each depth, for all steps, the deepest first.

    Each number is a power of two, so that other programs can often reuse a compiled step.
    """
    depths = node_depths(features)
    most = int(depths.max())
    counts = np.stack([(depths == depth).sum(axis=1) for depth in range(most, -1, -1)], axis=1)
    needed = np.max([counts[np.concatenate(step)].sum(axis=0) for step in steps], axis=0)
    return tuple(1 << int(count - 1).bit_length() for count in needed if count)


def _padded(features: np.ndarray, room: Sequence[int]) -> tuple[Any, ...]:
    """Pad trees; returns the arrays of a ``TreeBatch``.

    Padding has numbers past the last one, which ``_segment_sum`` drops. ``parents`` has one array
    for each level.
    """
    batch = TreeBatch.from_features(features)
    total = sum(room)
    starts = np.concatenate([[0], np.cumsum(room)])
    contexts = np.zeros((total, WIDTH), dtype=np.float32)
    parents = [np.zeros(0, dtype=np.int32)]
    parents += [np.full(below, above) for below, above in pairwise(room)]
    places = np.zeros(len(batch.contexts), dtype=int)
    first = len(room) - len(batch.levels)
    for number, level in enumerate(batch.levels, start=first):
        contexts[starts[number] : starts[number] + level.count] = batch.contexts[level.nodes]
        places[level.nodes] = starts[number] + np.arange(level.count)
        parents[number][: len(level.parents)] = level.parents
    by_tree = np.zeros(total, dtype=np.int32)
    by_tree[: len(places)] = places[batch.by_tree]
    trees = np.full(total, groups.PROGRAMS, dtype=np.int32)
    trees[: len(places)] = batch.trees
    return contexts, tuple(rows.astype(np.int32) for rows in parents), by_tree, trees


@partial(jax.jit, static_argnames=("room", "objective"))
def _step(
    state: State,
    fixed: Parameters,
    trees: tuple[Any, ...],
    dropped: Any,
    expected: Any,
    places: Any,
    present: Any,
    rate: Any,
    number: Any,
    *,
    room: tuple[int, ...],
    objective: Objective,
) -> State:
    """One step of AdamW on the parameters and their two moments."""
    learned = state[0]

    def loss(learned: Parameters) -> Any:
        kept = forward(learned | fixed, trees, room) * dropped
        scores = (kept @ learned["output"] + learned["output_bias"])[:, 0][places]
        return _LOSSES[objective](scores, expected, present)

    return adamw(state, jax.grad(loss)(learned), rate, number)


def forward(parameters: Parameters, trees: tuple[Any, ...], room: Sequence[int]) -> Any:
    """``network.memory`` of padded trees, of shape ``(GROUP * GROUPS, SLOTS * HIDDEN)``."""
    contexts, parents, by_tree, numbers = trees
    stops = np.cumsum(room).tolist()
    levels = [
        Level(slice(stop - count, stop), rows)
        for stop, count, rows in zip(stops, room, parents, strict=True)
    ]
    batch = TreeBatch(contexts, tuple(levels), by_tree, numbers, groups.PROGRAMS)
    return memory(parameters, batch, jnp, _segment_sum)


def _segment_sum(rows: Any, numbers: Any, count: int) -> Any:
    """Sum rows with equal numbers; JAX drops rows whose number is ``count`` or more."""
    return jax.ops.segment_sum(rows, numbers, num_segments=count)


_LOSSES: dict[Objective, Callable[[Any, Any, Any], Any]] = {
    "rank": logistic_pairs,
    "regression": squared_error,
}

# SPDX-License-Identifier: Apache-2.0
"""Trains the networks with JAX, which must be installed. Imports no TVM.

JAX compiles a step for fixed shapes, so the inputs of a step are padded. Padding does not change
any sum.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tvm_droplet_ms.cost_model.boosted_trees import Objective

from . import groups, pattern_aware, tree_gru
from .dataflow import LEVELS
from .descent import (
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
from .loop_tree import WIDTH
from .tree_batch import Level, TreeBatch, node_depths

EPOCHS = 12
"""Passes over the programs. At this point a TreeGRU's accuracy on held-out workloads has stopped
rising but has not begun to fall."""

MIN_STEPS = 240
"""Minimum number of steps, for small training sets."""

_RATE = 3e-3

Step = list[np.ndarray]
"""The groups of programs of a step; see ``groups.steps``."""

Room = tuple[int, ...]
"""The padded sizes of a step."""

Batch = Callable[[Step], tuple[Any, Room, int]]
"""The inputs of a step as padded arrays, their room, and the number of padded programs."""

Loss = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class Programs:
    """The programs to train on, at least one. All workloads have equal weight.

    - ``features``: the inputs of the network, of shape ``(programs, width)``.
    - ``throughput``: relative to the best of the workload, of shape ``(programs,)``.
    - ``workloads``: the workload index of each program, of the same shape.
    """

    features: np.ndarray
    throughput: np.ndarray
    workloads: np.ndarray


@dataclass(frozen=True)
class Recipe:
    """What differs between the networks.

    - ``dropout``: the share of the last states that a step drops.
    - ``rank``: the loss of the objective "rank".
    - ``weights_first``: whether a seed draws the first weights before the order of the programs.
    - ``shapes``: the shapes of the learned parameters, given the fixed ones.
    - ``standard``: the fixed parameters: means and scales of the inputs, given features.
    - ``batches``: pads the steps of a training, given the features and the steps.
    - ``forward``: the last states of padded programs, given parameters, inputs and the room.
    """

    dropout: float
    rank: Loss
    weights_first: bool
    shapes: Callable[[Parameters], dict[str, tuple[int, ...]]]
    standard: Callable[[np.ndarray], Parameters]
    batches: Callable[[np.ndarray, Sequence[Step]], Batch]
    forward: Callable[[Parameters, Any, Room], Any]


def train(
    recipe: Recipe, programs: Programs, objective: Objective, seed: int
) -> dict[str, np.ndarray]:
    """Train a network with AdamW and cosine learning rate decay to 0.

    ``objective``: "rank" or "regression". ``seed``: the same seed makes the same parameters.
    Returns the learned parameters, and the means and scales of the inputs, float32.
    """
    generator = np.random.default_rng(seed)
    members = groups.members_of(programs.workloads)
    fixed = recipe.standard(programs.features)
    shapes, count = recipe.shapes(fixed), groups.epochs(members, EPOCHS, MIN_STEPS)
    learned = begin(shapes, generator) if recipe.weights_first else None
    steps = list(groups.steps(members, count, generator))
    learned = learned or begin(shapes, generator)
    rates = cosine(_RATE, len(steps))
    return _descend(recipe, (learned, fixed), programs, steps, rates, objective, generator)


def fine_tune(
    recipe: Recipe,
    parameters: Mapping[str, np.ndarray],
    programs: Programs,
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
    - ``objective``: "rank" or "regression".
    - ``seed``: seed of the order of the programs and of dropout.
    - ``steps``: number of steps.

    Returns parameters of the same names; the given parameters are unchanged.
    """
    generator = np.random.default_rng(seed)
    fixed = {name: parameters[name] for name in recipe.standard(programs.features[:1])}
    learned = {name: value for name, value in parameters.items() if name not in fixed}
    members = groups.members_of(programs.workloads)
    drawn = list(groups.steps(members, groups.epochs(members, 1, steps), generator))[:steps]
    rates = np.full(len(drawn), rate)
    return _descend(recipe, (learned, fixed), programs, drawn, rates, objective, generator)


def _descend(
    recipe: Recipe,
    parameters: tuple[Parameters, Parameters],
    programs: Programs,
    steps: Sequence[Step],
    rates: np.ndarray,
    objective: Objective,
    generator: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Take the steps; ``parameters``: those that are learned, and those that are fixed."""
    learned, fixed = parameters
    batch = recipe.batches(programs.features, steps)
    state = without_moments(learned)
    loss = recipe.rank if objective == "rank" else squared_error
    for number, (step, rate) in enumerate(zip(steps, rates, strict=True), start=1):
        inputs, room, padded = batch(step)
        state = _step(
            state,
            fixed,
            inputs,
            dropped((padded, learned["output"].shape[0]), recipe.dropout, generator),
            groups.targets(programs.throughput, step),
            (np.float32(rate), np.float32(number)),
            way=_Way(recipe.forward, room, loss),
        )
    return {name: np.array(value) for name, value in state[0].items()} | fixed


@dataclass(frozen=True)
class _Way:
    """What a step is compiled for."""

    forward: Callable[[Parameters, Any, Room], Any]
    room: Room
    loss: Loss


@partial(jax.jit, static_argnames=("way",))
def _step(
    state: State,
    fixed: Parameters,
    inputs: Any,
    dropped: Any,
    targets: tuple[Any, Any, Any],
    pace: tuple[Any, Any],
    *,
    way: _Way,
) -> State:
    """One step of AdamW on the parameters and their two moments; ``pace``: its rate and number."""
    expected, places, present = targets

    def loss(learned: Parameters) -> Any:
        kept = way.forward(learned | fixed, inputs, way.room) * dropped
        scores = (kept @ learned["output"] + learned["output_bias"])[:, 0][places]
        return way.loss(scores, expected, present)

    return adamw(state, jax.grad(loss)(state[0]), *pace)


def _tree_batches(features: np.ndarray, steps: Sequence[Step]) -> Batch:
    """Pad trees: each level has room for the maximum number of nodes in any step."""
    room = tree_room(features, steps)

    def batch(step: Step) -> tuple[Any, Room, int]:
        return padded_trees(features[np.concatenate(step)], room), room, groups.PROGRAMS

    return batch


def tree_room(features: np.ndarray, steps: Sequence[Step]) -> Room:
    """The padded number of nodes at each depth, for all steps, the deepest first.

    Each number is a power of two, so that other programs can often reuse a compiled step.
    """
    depths = node_depths(features)
    most = int(depths.max())
    counts = np.stack([(depths == depth).sum(axis=1) for depth in range(most, -1, -1)], axis=1)
    needed = np.max([counts[np.concatenate(step)].sum(axis=0) for step in steps], axis=0)
    return tuple(1 << int(count - 1).bit_length() for count in needed if count)


def padded_trees(features: np.ndarray, room: Room) -> tuple[Any, ...]:
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


def tree_memory(parameters: Parameters, trees: tuple[Any, ...], room: Room) -> Any:
    """``tree_gru.memory`` of padded trees, of shape ``(GROUP * GROUPS, SLOTS * HIDDEN)``."""
    contexts, parents, by_tree, numbers = trees
    stops = np.cumsum(room).tolist()
    levels = [
        Level(slice(stop - count, stop), rows)
        for stop, count, rows in zip(stops, room, parents, strict=True)
    ]
    batch = TreeBatch(contexts, tuple(levels), by_tree, numbers, groups.PROGRAMS)
    return tree_gru.memory(parameters, batch, jnp, _segment_sum)


def _segment_sum(rows: Any, numbers: Any, count: int) -> Any:
    """Sum rows with equal numbers; JAX drops rows whose number is ``count`` or more."""
    return jax.ops.segment_sum(rows, numbers, num_segments=count)


def _movement_batches(features: np.ndarray, steps: Sequence[Step]) -> Batch:
    def batch(step: Step) -> tuple[Any, Room, int]:
        # A step is compiled for a fixed number of programs: one group, or all groups of a step.
        room = groups.GROUP if len(step) == 1 else groups.PROGRAMS
        padded = np.zeros((room, features.shape[1]), dtype=np.float32)
        rows = np.concatenate(step)
        padded[: len(rows)] = features[rows]
        return pattern_aware.split(padded), (), room

    return batch


def _movement_standard(features: np.ndarray) -> Parameters:
    """The means and the standard deviations of the inputs over the nonempty rows."""
    tokens, statements = pattern_aware.split(features)
    present = tokens[tokens[:, :, : len(LEVELS)].any(axis=2)]
    computed = statements[statements[:, :, 0] > 0]
    return standard(present, "token_") | standard(computed, "statement_")


def _movement_states(parameters: Parameters, inputs: tuple[Any, Any], _room: Room) -> Any:
    return pattern_aware.states(parameters, *inputs, jnp)


def _ranking(scores: Any, expected: Any, present: Any) -> Any:
    """LambdaRank, which nearly ignores slow programs, plus the loss that weights pairs equally.

    With these, PaCM orders 0.781 of the pairs of six held-out spaces, and with LambdaRank alone
    0.745 (2026-11-24, commit df68055).
    """
    return lambda_rank(scores, expected, present) + logistic_pairs(scores, expected, present)


RECIPES: Mapping[str, Recipe] = {
    "TreeGRU": Recipe(
        dropout=0.2,
        rank=logistic_pairs,
        weights_first=True,
        shapes=lambda fixed: tree_gru.SHAPES,
        standard=lambda features: standard(TreeBatch.from_features(features).contexts),
        batches=_tree_batches,
        forward=tree_memory,
    ),
    "PatternAware": Recipe(
        dropout=0.3,
        rank=_ranking,
        weights_first=False,
        shapes=lambda fixed: pattern_aware.shapes(len(fixed["statement_mean"])),
        standard=_movement_standard,
        batches=_movement_batches,
        forward=_movement_states,
    ),
}
"""The recipe of each network, by the name of its class."""

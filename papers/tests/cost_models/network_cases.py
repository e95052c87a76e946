# SPDX-License-Identifier: Apache-2.0

"""Networks of random parameters, and programs whose times they can learn."""

import json

import numpy as np

from tvm_droplet_papers.cost_models import DataFlow
from tvm_droplet_papers.cost_models.dataflow import LEVELS, STATEMENT_WIDTH, TOKEN_WIDTH
from tvm_droplet_papers.cost_models.loop_tree import MAX_NODES, WIDTH
from tvm_droplet_papers.cost_models.pattern_aware import PatternAware, shapes, split
from tvm_droplet_papers.cost_models.tree_gru import SHAPES, TreeGRU

TARGET = json.dumps({"kind": "llvm"})


def movements(seed: int, count: int = 320) -> tuple[np.ndarray, np.ndarray]:
    """Programs of 4 to 12 movements and 1 to 3 statements, and their times.

    The time depends on what two movements have in common: the widest over the narrowest.
    """
    generator = np.random.default_rng(seed)
    features = np.zeros((count, DataFlow.width), dtype=np.float32)
    tokens, statements = split(features)
    secs = np.zeros(count)
    for program in range(count):
        moved = int(generator.integers(4, 13))
        levels = generator.integers(0, len(LEVELS), moved)
        tokens[program, np.arange(moved), levels] = 1.0
        numbers = generator.normal(size=(moved, 3))
        tokens[program, :moved, 8:11] = numbers
        computed = int(generator.integers(1, 4))
        statements[program, :computed, 0] = 1.0
        statements[program, :computed, 6] = generator.normal(size=computed)
        work = statements[program, :computed, 6].sum()
        secs[program] = np.exp(0.5 * np.ptp(numbers[:, 0]) + 0.2 * work)
    return features, secs


def random_tree(generator: np.random.Generator) -> np.ndarray:
    """A random tree of 2 to 12 nodes in preorder, with three random numbers per node."""
    count = int(generator.integers(2, 13))
    rows = np.full((MAX_NODES, 1 + WIDTH), 0.0, dtype=np.float32)
    rows[:, 0] = -1.0
    path = [0]
    for node in range(count):
        path = path[: int(generator.integers(1, len(path) + 1))] if node else []
        rows[node, 0] = path[-1] if path else 0
        path.append(node)
    rows[:count, 1:4] = generator.normal(size=(count, 3))
    return rows


def time_of(rows: np.ndarray) -> float:
    """The time depends on the tree's shape: each node's number is combined with its parent's."""
    parents = rows[:, 0].astype(int)
    nodes = np.flatnonzero(parents >= 0)[1:]
    return float(np.exp(np.tanh(rows[nodes, 1] * (1.0 + rows[parents[nodes], 2])).sum()))


def trees(seed: int, count: int = 240) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    made = [random_tree(generator) for _ in range(count)]
    return np.stack(made).reshape(count, -1), np.array([time_of(rows) for rows in made])


def random_parameters(
    sizes: dict[str, tuple[int, ...]], inputs: dict[str, int]
) -> dict[str, np.ndarray]:
    """Random weights, and random means and scales of inputs, given by prefix of their names."""
    generator = np.random.default_rng(0)
    parameters = {
        name: generator.normal(0.0, 0.2, shape).astype(np.float32) for name, shape in sizes.items()
    }
    for prefix, width in inputs.items():
        parameters[f"{prefix}mean"] = generator.normal(size=width).astype(np.float32)
        parameters[f"{prefix}scale"] = generator.uniform(0.5, 2.0, width).astype(np.float32)
    return parameters


def pacm(width: int = STATEMENT_WIDTH) -> PatternAware:
    inputs = {"token_": TOKEN_WIDTH, "statement_": width}
    return PatternAware(random_parameters(shapes(width), inputs), "regression")


def tree_gru() -> TreeGRU:
    return TreeGRU(random_parameters(SHAPES, {"": WIDTH}), "regression")

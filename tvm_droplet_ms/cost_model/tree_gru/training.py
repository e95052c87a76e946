# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Trains a TreeGRU with PyTorch, on one thread. Imports no TVM."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..boosted_trees import Objective
from .tree_batch import TreeBatch
from .tree_gru import SHAPES, memory

try:
    import torch
except ImportError as error:
    raise ImportError(
        "training a TreeGRU takes PyTorch, which is not installed: "
        "pip install 'tvm-droplet-ms[torch]'"
    ) from error

EPOCHS = 12
"""How often the programs are gone through: by then the accuracy on workloads that were held out
has stopped rising, and has not begun to fall."""

_LEAST_STEPS = 240
"""As many steps at least, where there are few programs."""

_PER_EPOCH = 1024
"""The most programs of a workload in an epoch."""

_GROUP, _GROUPS = 64, 4
"""How many programs of one workload are compared with each other, and how many such groups make a
step."""

_RATE, _DECAY, _DROPOUT, _CLIP = 3e-3, 1e-2, 0.2, 1.0


def train(
    features: np.ndarray,
    throughput: np.ndarray,
    workloads: np.ndarray,
    *,
    objective: Objective,
    seed: int,
) -> dict[str, np.ndarray]:
    """The parameters of a network, by AdamW on a rate that falls to 0 as a cosine.

    Parameters
    ----------
    features : np.ndarray
        Those of ``loop_tree``, of shape ``(programs, TREE_FEATURES)``, at least one.
    throughput : np.ndarray
        Relative to the best of the workload, of shape ``(programs,)``.
    workloads : np.ndarray
        Which workload each program is of, of the same shape. Each counts as much.
    objective : Objective
        "rank" or "regression".
    seed : int
        The same parameters come of the same seed.

    Returns
    -------
    parameters : dict[str, np.ndarray]
        Those of ``tree_gru.SHAPES``, and the mean and the scale of the contexts, float32.
    """
    generator = torch.Generator().manual_seed(seed)
    shuffler = np.random.default_rng(seed)
    members = [np.flatnonzero(workloads == one) for one in np.unique(workloads)]
    fixed = _standard(features)
    learned = _initial(generator)
    parameters = learned | {name: torch.from_numpy(value) for name, value in fixed.items()}
    steps = -(-_groups_of_each(members) * len(members) // _GROUPS)
    epochs = max(EPOCHS, -(-_LEAST_STEPS // steps))
    optimizer = torch.optim.AdamW(_decay(learned), lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps)
    expected = torch.from_numpy(throughput.astype(np.float32))
    with _one_thread():
        for groups in _steps(members, epochs, shuffler):
            rows = np.concatenate(groups)
            scores = _scores(parameters, features[rows], generator)
            sizes = [len(group) for group in groups]
            loss = _LOSSES[objective](scores, expected[torch.from_numpy(rows)], sizes)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(list(learned.values()), _CLIP)
            optimizer.step()
            schedule.step()
    return {name: value.detach().numpy().copy() for name, value in learned.items()} | fixed


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums of several threads depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _standard(features: np.ndarray) -> dict[str, np.ndarray]:
    """The mean and the deviation of each number of a node; 1 where it is always the same."""
    contexts = TreeBatch.from_features(features).contexts.astype(float)
    scale = contexts.std(axis=0)
    scale[scale < 1e-6] = 1.0
    return {"mean": contexts.mean(axis=0).astype("f4"), "scale": scale.astype("f4")}


def _initial(generator: Any) -> dict[str, Any]:
    """Uniform to the inverse root of how many numbers come in, and biases of 0."""
    learned = {}
    for name, shape in SHAPES.items():
        bound = shape[0] ** -0.5 if len(shape) > 1 else 0.0
        learned[name] = (2.0 * torch.rand(shape, generator=generator) - 1.0) * bound
        learned[name].requires_grad_()
    return learned


def _decay(learned: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The weights decay, the biases do not."""
    weights = [value for name, value in learned.items() if len(SHAPES[name]) > 1]
    biases = [value for name, value in learned.items() if len(SHAPES[name]) == 1]
    return [
        {"params": weights, "weight_decay": _DECAY},
        {"params": biases, "weight_decay": 0.0},
    ]


def _groups_of_each(members: Sequence[np.ndarray]) -> int:
    """How many groups of each workload an epoch has."""
    return -(-min(max(map(len, members)), _PER_EPOCH) // _GROUP)


def _steps(
    members: Sequence[np.ndarray], epochs: int, shuffler: np.random.Generator
) -> Iterator[list[np.ndarray]]:
    """The groups of each step. A workload of few programs is gone through more often."""
    of_each = _groups_of_each(members)
    for _ in range(epochs):
        groups = []
        for programs in members:
            size = min(_GROUP, len(programs))
            groups += list(np.resize(shuffler.permutation(programs), (of_each, size)))
        order = shuffler.permutation(len(groups))
        for start in range(0, len(order), _GROUPS):
            yield [groups[index] for index in order[start : start + _GROUPS]]


def _scores(parameters: Mapping[str, Any], features: np.ndarray, generator: Any) -> Any:
    kept = memory(parameters, TreeBatch.from_features(features), torch, _segment_sum)
    dropped = torch.rand(kept.shape, generator=generator) < _DROPOUT
    kept = kept.masked_fill(dropped, 0.0) / (1.0 - _DROPOUT)
    return (kept @ parameters["output"] + parameters["output_bias"])[:, 0]


def _segment_sum(rows: Any, numbers: np.ndarray, count: int) -> Any:
    sums = torch.zeros((count, rows.shape[1]), dtype=rows.dtype)
    return sums.index_add(0, torch.from_numpy(numbers), rows)


def _squared_error(scores: Any, expected: Any, _: Sequence[int]) -> Any:
    return ((scores - expected) ** 2).mean()


def _pairwise(scores: Any, expected: Any, sizes: Sequence[int]) -> Any:
    """The logistic loss of the pairs of unlike programs of a group, the mean of the groups."""
    losses = []
    for score, value in zip(scores.split(sizes), expected.split(sizes), strict=True):
        sign = torch.sign(value[:, None] - value)
        loss = torch.nn.functional.softplus(-sign * (score[:, None] - score)) * sign.abs()
        losses.append(loss.sum() / sign.abs().sum().clamp(min=1.0))
    return torch.stack(losses).mean()


_LOSSES = {"rank": _pairwise, "regression": _squared_error}

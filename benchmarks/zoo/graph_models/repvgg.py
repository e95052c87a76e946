# SPDX-License-Identifier: Apache-2.0
"""RepVGG as trained, with three branches per block, and its hand-merged form with one branch.

"RepVGG: Making VGG-style ConvNets Great Again" (Ding et al., CVPR 2021), table 2 and section 3.3.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tvm.ir import IRModule

from .writing import EPSILON, Network, channels_of, write

STAGES = ((1, 48), (2, 48), (4, 96), (14, 192), (1, 1280))
"""Blocks and channels of each stage of RepVGG-A0. The first block of each stage has stride 2."""

Stages = Sequence[tuple[int, int]]


def repvgg(size: int = 224, stages: Stages = STAGES, classes: int = 1000) -> IRModule:
    """RepVGG as trained: a 3x3, a 1x1 and an identity branch, each with its batch norm."""
    return _network(size, stages, classes, _as_trained)


def repvgg_by_hand(size: int = 224, stages: Stages = STAGES, classes: int = 1000) -> IRModule:
    """The same function as ``repvgg``, with a single 3x3 convolution per block."""
    return _network(size, stages, classes, _by_hand)


Block = Callable[[Network, Any, list[np.ndarray | None], list[list[np.ndarray]], int], Any]


def _network(size: int, stages: Stages, classes: int, block: Block) -> IRModule:
    def body(net: Network, x: Any) -> Any:
        for blocks, outputs in stages:
            for number in range(blocks):
                inputs, stride = channels_of(x), 1 if number else 2
                kernels: list[np.ndarray | None] = [
                    net.kernel(inputs, outputs, 3) / 2,
                    net.kernel(inputs, outputs, 1) / 2,
                ]
                if stride == 1 and inputs == outputs:
                    kernels.append(None)
                norms = [net.statistics(outputs) for _ in kernels]
                x = net.relu(block(net, x, kernels, norms, stride))
        return net.classify(x, classes)

    return write(body, (1, 3, size, size))


def _as_trained(
    net: Network,
    x: Any,
    kernels: list[np.ndarray | None],
    norms: list[list[np.ndarray]],
    stride: int,
) -> Any:
    branches = [
        net.norm(x if kernel is None else net.convolve(x, kernel, stride), norm)
        for kernel, norm in zip(kernels, norms, strict=True)
    ]
    total = branches[0]
    for branch in branches[1:]:
        total = net.add(total, branch)
    return total


def _by_hand(
    net: Network,
    x: Any,
    kernels: list[np.ndarray | None],
    norms: list[list[np.ndarray]],
    stride: int,
) -> Any:
    first = kernels[0]
    assert first is not None, "a block begins with its 3x3"
    total, shift = np.zeros_like(first), np.zeros(len(first), "float32")
    for kernel, (gamma, beta, mean, variance) in zip(kernels, norms, strict=True):
        if kernel is None:
            kernel = np.eye(len(first), dtype="float32")[:, :, None, None]
        scale = gamma / np.sqrt(variance + EPSILON)
        margin = (3 - kernel.shape[2]) // 2
        around = ((0, 0), (0, 0), (margin, margin), (margin, margin))
        total += np.pad(kernel * scale[:, None, None, None], around)
        shift += beta - mean * scale
    return net.add(net.convolve(x, total, stride), net.const(shift[None, :, None, None]))

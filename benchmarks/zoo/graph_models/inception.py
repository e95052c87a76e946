# SPDX-License-Identifier: Apache-2.0
"""Inception-v3."""

from collections.abc import Sequence
from typing import Any

from tvm.ir import IRModule

from .writing import Network, write

POOLED = (32, 64, 64)
"""Channels of the pooled branch of each module at the first resolution."""
HIDDEN = (128, 160, 160, 192)
"""Channels inside the 1x7 and 7x1 branches of each module at the second resolution."""


def inception_v3(
    size: int = 299,
    pooled: Sequence[int] = POOLED,
    hidden: Sequence[int] = HIDDEN,
    last: int = 2,
    classes: int = 1000,
) -> IRModule:
    """Inception-v3 without its auxiliary classifier.

    "Rethinking the Inception Architecture for Computer Vision" (Szegedy et al., CVPR 2016), table 1
    and figures 5 to 7, with the channels of the published network.
    """

    def body(net: Network, x: Any) -> Any:
        y = _stem(net, x)
        for channels in pooled:
            y = _square(net, y, channels)
        y = _first_reduction(net, y)
        for channels in hidden:
            y = _factorized(net, y, channels)
        y = _second_reduction(net, y)
        for _ in range(last):
            y = _expanded(net, y)
        return net.classify(y, classes)

    return write(body, (1, 3, size, size))


def _layer(
    net: Network,
    x: Any,
    outputs: int,
    size: int | tuple[int, int],
    stride: int = 1,
    padded: bool = True,
) -> Any:
    return net.relu(net.layer(x, outputs, size, stride, padded=padded))


def _stem(net: Network, x: Any) -> Any:
    y = _layer(net, x, 32, 3, 2, padded=False)
    y = _layer(net, y, 32, 3, padded=False)
    y = net.largest(_layer(net, y, 64, 3), 2, padded=False)
    y = _layer(net, _layer(net, y, 80, 1), 192, 3, padded=False)
    return net.largest(y, 2, padded=False)


def _square(net: Network, x: Any, pooled: int) -> Any:
    """A module with a 5x5 branch and a branch with two 3x3 convolutions."""
    two = _layer(net, _layer(net, x, 64, 1), 96, 3)
    return net.concat(
        _layer(net, x, 64, 1),
        _layer(net, _layer(net, x, 48, 1), 64, 5),
        _layer(net, two, 96, 3),
        _layer(net, net.average(x), pooled, 1),
    )


def _first_reduction(net: Network, x: Any) -> Any:
    two = _layer(net, _layer(net, x, 64, 1), 96, 3)
    return net.concat(
        _layer(net, x, 384, 3, 2, padded=False),
        _layer(net, two, 96, 3, 2, padded=False),
        net.largest(x, 2, padded=False),
    )


def _factorized(net: Network, x: Any, hidden: int) -> Any:
    """A module with branches of one and two 7x7 convolutions, each factorized into 1x7 and 7x1."""
    once = _layer(net, _layer(net, x, hidden, 1), hidden, (1, 7))
    twice = _layer(net, _layer(net, x, hidden, 1), hidden, (7, 1))
    twice = _layer(net, _layer(net, twice, hidden, (1, 7)), hidden, (7, 1))
    return net.concat(
        _layer(net, x, 192, 1),
        _layer(net, once, 192, (7, 1)),
        _layer(net, twice, 192, (1, 7)),
        _layer(net, net.average(x), 192, 1),
    )


def _second_reduction(net: Network, x: Any) -> Any:
    seven = _layer(net, _layer(net, x, 192, 1), 192, (1, 7))
    seven = _layer(net, seven, 192, (7, 1))
    return net.concat(
        _layer(net, _layer(net, x, 192, 1), 320, 3, 2, padded=False),
        _layer(net, seven, 192, 3, 2, padded=False),
        net.largest(x, 2, padded=False),
    )


def _expanded(net: Network, x: Any) -> Any:
    """A module whose 3x3 convolutions are split into parallel 1x3 and 3x1 convolutions."""
    three, two = _layer(net, x, 384, 1), _layer(net, _layer(net, x, 448, 1), 384, 3)
    return net.concat(
        _layer(net, x, 320, 1),
        *(_layer(net, y, 384, size) for y in (three, two) for size in ((1, 3), (3, 1))),
        _layer(net, net.average(x), 192, 1),
    )

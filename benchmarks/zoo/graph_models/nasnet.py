# SPDX-License-Identifier: Apache-2.0
"""NASNet-A."""

from typing import Any

from tvm import relax
from tvm.ir import IRModule

from .writing import Network, channels_of, write


def nasnet_a(
    size: int = 224, stem: int = 32, filters: int = 44, cells: int = 4, classes: int = 1000
) -> IRModule:
    """NASNet-A, by default the mobile variant (4 @ 1056).

    "Learning Transferable Architectures for Scalable Image Recognition" (Zoph et al., CVPR 2018),
    figures 2 and 4 and appendix A. Padding is the same on both sides, even for stride 2.
    """

    def body(net: Network, x: Any) -> Any:
        image = net.layer(x, stem, 3, 2, padded=False)
        before, y = image, _reduction(net, image, image, filters // 4)
        before, y = y, _reduction(net, y, _adjusted(net, before, y, filters // 2), filters // 2)
        for stage in range(3):
            width = filters << stage
            if stage:
                before, y = y, _reduction(net, y, _adjusted(net, before, y, width), width)
            for _ in range(cells):
                before, y = y, _normal(net, y, _adjusted(net, before, y, width), width)
        return net.classify(net.relu(y), classes)

    return write(body, (1, 3, size, size))


def _squeezed(net: Network, x: Any, filters: int) -> Any:
    return net.layer(net.relu(x), filters, 1)


def _adjusted(net: Network, before: Any, x: Any, filters: int) -> Any:
    """The output of the cell before the last, adjusted to the spatial size of ``x``."""
    if _extent(before) == _extent(x):
        return _squeezed(net, before, filters)
    y = net.relu(before)
    shifted = net.emit(relax.op.nn.pad(y, (0, 0, 0, 0, 0, 1, 0, 1)))
    shifted = net.emit(
        relax.op.strided_slice(shifted, [2, 3], [1, 1], [_extent(y) + 1, _extent(y) + 1])
    )
    halves = []
    for path, outputs in ((y, filters // 2), (shifted, filters - filters // 2)):
        every_second = net.emit(relax.op.nn.avg_pool2d(path, (1, 1), (2, 2)))
        halves.append(net.convolve(every_second, net.kernel(channels_of(path), outputs, 1)))
    return net.norm(net.concat(*halves), net.statistics(filters))


def _separable(net: Network, x: Any, filters: int, size: int, stride: int = 1) -> Any:
    """Two depthwise convolutions, each followed by a pointwise convolution."""
    for step in (stride, 1):
        inputs = channels_of(x)
        depthwise = net.kernel(inputs, inputs, size, groups=inputs)
        x = net.layer(net.convolve(net.relu(x), depthwise, step, inputs), filters, 1)
    return x


def _normal(net: Network, x: Any, before: Any, filters: int) -> Any:
    h = _squeezed(net, x, filters)
    return net.concat(
        before,
        net.add(_separable(net, h, filters, 5), _separable(net, before, filters, 3)),
        net.add(_separable(net, before, filters, 5), _separable(net, before, filters, 3)),
        net.add(net.average(h), before),
        net.add(net.average(before), net.average(before)),
        net.add(_separable(net, h, filters, 3), h),
    )


def _reduction(net: Network, x: Any, before: Any, filters: int) -> Any:
    h = _squeezed(net, x, filters)
    first = net.add(_separable(net, h, filters, 5, 2), _separable(net, before, filters, 7, 2))
    second = net.add(net.largest(h, 2), _separable(net, before, filters, 7, 2))
    return net.concat(
        second,
        net.add(net.average(h, 2), _separable(net, before, filters, 5, 2)),
        net.add(net.average(first), second),
        net.add(_separable(net, first, filters, 3), net.largest(h, 2)),
    )


def _extent(x: Any) -> int:
    """The height of an NCHW image."""
    return int(x.ty.shape[2])

# SPDX-License-Identifier: Apache-2.0
"""Residual networks: ResNet-50 v1, ResNeXt-50 and MobileNet-v2."""

from collections.abc import Sequence
from typing import Any

from tvm import relax
from tvm.ir import IRModule

from ..model_zoo import MOBILENET_V2
from .writing import Network, channels_of, write

STAGES = (3, 4, 6, 3)
"""Blocks of each stage of the 50-layer networks."""


def resnet_v1(
    size: int = 224, width: int = 64, stages: Sequence[int] = STAGES, classes: int = 1000
) -> IRModule:
    """ResNet with the stride in the first 1x1 convolution of a block.

    "Deep Residual Learning for Image Recognition" (He et al., CVPR 2016), table 1, and the authors'
    networks. Version 1.5 has the stride in the 3x3 convolution.
    """
    return _network(size, width, stages, classes, groups=1, early=True)


def resnext(
    size: int = 224,
    width: int = 128,
    stages: Sequence[int] = STAGES,
    classes: int = 1000,
    groups: int = 32,
) -> IRModule:
    """ResNeXt: the 3x3 convolution of a block is grouped. See ``resnet_v1`` for other parameters.

    "Aggregated Residual Transformations for Deep Neural Networks" (Xie et al., CVPR 2017), table 1:
    32 groups of 4 channels.
    """
    return _network(size, width, stages, classes, groups=groups, early=False)


def _network(
    size: int, width: int, stages: Sequence[int], classes: int, groups: int, early: bool
) -> IRModule:
    first = width if groups == 1 else width // 2

    def body(net: Network, x: Any) -> Any:
        y = net.relu(net.layer(x, first, 7, 2))
        y = net.largest(y, 2)
        for stage, blocks in enumerate(stages):
            hidden = width << stage
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                y = _block(net, y, hidden, 4 * (first << stage), stride, groups, early)
        return net.classify(y, classes)

    return write(body, (1, 3, size, size))


def _block(
    net: Network, x: Any, hidden: int, outputs: int, stride: int, groups: int, early: bool
) -> Any:
    """A 1x1, a 3x3 and a 1x1 convolution, with a shortcut."""
    y = net.relu(net.layer(x, hidden, 1, stride if early else 1))
    y = net.relu(net.layer(y, hidden, 3, 1 if early else stride, groups))
    y = net.layer(y, outputs, 1)
    is_same = stride == 1 and channels_of(x) == outputs
    return net.relu(net.add(y, x if is_same else net.layer(x, outputs, 1, stride)))


def mobilenet_v2(
    size: int = 224,
    stages: Sequence[tuple[int, int, int, int]] = MOBILENET_V2,
    last: int = 1280,
    classes: int = 1000,
) -> IRModule:
    """MobileNet-v2."""

    def relu6(net: Network, x: Any) -> Any:
        return net.emit(relax.op.clip(x, 0, 6))

    def block(net: Network, x: Any, expansion: int, outputs: int, stride: int) -> Any:
        inputs = channels_of(x)
        hidden = inputs * expansion
        y = relu6(net, net.layer(x, hidden, 1)) if expansion > 1 else x
        y = relu6(net, net.layer(y, hidden, 3, stride, groups=hidden))
        y = net.layer(y, outputs, 1)
        return net.add(x, y) if stride == 1 and inputs == outputs else y

    def body(net: Network, x: Any) -> Any:
        y = relu6(net, net.layer(x, 32, 3, 2))
        for expansion, outputs, blocks, stride in stages:
            for number in range(blocks):
                y = block(net, y, expansion, outputs, 1 if number else stride)
        return net.classify(relu6(net, net.layer(y, last, 1)), classes)

    return write(body, (1, 3, size, size))

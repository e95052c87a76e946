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
"""MobileNet-v2."""

from collections.abc import Sequence
from typing import Any

from tvm import relax
from tvm.ir import IRModule

from .writing import Network, channels_of, write

STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, output channels, blocks and stride of each stage ("MobileNetV2: Inverted Residuals and
Linear Bottlenecks", Sandler et al., 2018, table 2)."""


def mobilenet_v2(
    size: int = 224,
    stages: Sequence[tuple[int, int, int, int]] = STAGES,
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

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
"""Rules of decomposition: operators of PyTorch in terms of others that TVM has."""

from collections.abc import Callable, Sequence
from typing import Any


def _unfold(torch: Any, x: Any, axis: int, size: int, step: int) -> Any:
    """Windows along an axis. PyTorch's own rule is a view with strides, which TVM has not."""
    axis = axis % x.dim()
    count = (x.shape[axis] - size) // step + 1
    if size == step:
        whole = x.narrow(axis, 0, count * size).unflatten(axis, (count, size))
    else:
        places = torch.arange(count)[:, None] * step + torch.arange(size)
        whole = x.index_select(axis, places.flatten()).unflatten(axis, (count, size))
    return whole.movedim(axis + 1, -1)


def _bounds(extent: int, count: int) -> list[tuple[int, int]]:
    """The windows of an adaptive pooling (``AdaptiveMaxPooling2d.cpp``)."""
    return [(i * extent // count, -(-(i + 1) * extent // count)) for i in range(count)]


def _adaptive_max_pool(torch: Any, x: Any, sizes: Sequence[int]) -> Any:
    """Maxima of windows of several sizes, and their places in the flat image."""
    spatial = x.shape[-len(sizes) :]
    flat = torch.arange(spatial.numel()).reshape(spatial)
    values, places = x, flat.expand(x.shape)
    for offset, count in enumerate(sizes):
        axis = x.dim() - len(sizes) + offset
        parts = []
        for low, high in _bounds(x.shape[axis], count):
            window = values.narrow(axis, low, high - low)
            best, where = window.max(axis, keepdim=True)
            parts.append((best, places.narrow(axis, low, high - low).gather(axis, where)))
        values = torch.cat([best for best, _ in parts], axis)
        places = torch.cat([place for _, place in parts], axis)
    return values, places


RULES: dict[str, Callable[..., Any]] = {
    "adaptive_max_pool2d.default": _adaptive_max_pool,
    "adaptive_max_pool3d.default": _adaptive_max_pool,
    "unfold.default": _unfold,
}
"""By the name of the overload; called with PyTorch before the operands."""

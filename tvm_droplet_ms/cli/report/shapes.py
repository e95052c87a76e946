# SPDX-License-Identifier: Apache-2.0
"""The shapes of a kernel as a person reads them: ``1x60x160x3 * 7x7x3x64``."""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from tvm.ir import IRModule
from tvm.s_tir import SBlock

from ...design_space.trees import nodes_in


def without_types(text: str) -> str:
    """TVM's text without the types of its integers: 64 for ``T.int64(64)``."""
    text = re.sub(r"T\.u?int\d+\((-?\d+)\)", r"\1", text)
    return re.sub(r'T\.Cast\("u?int\d+", (\w+)\)', r"\1", text)


def arguments_of(mod: IRModule) -> list[str]:
    """The arguments of a kernel: the name of each, its shape if it is a buffer, and its dtype."""
    return [
        f"{param.name}: {_shape(param)} {param.dtype}"
        if hasattr(param, "shape")
        else f"{param.name}: {param.ty.dtype}"
        for param in _function(mod).params
    ]


def shape_of(mod: IRModule) -> str:
    """The shapes that a kernel is known by.

    These are the factors of its largest reduction, or, without two of them, its largest input and
    its output: ``1x60x160x3 * 7x7x3x64``, ``1x3x8x8 -> 1x8x8x3``, or ``1x1000``.
    """
    function = _function(mod)
    buffers = [param for param in function.params if hasattr(param, "shape")]
    if not buffers:
        return ""
    blocks = nodes_in(function.body, SBlock)
    writer = {write.source: block for block in blocks for write in block.writes}
    reductions = [block for block in blocks if block.init is not None]
    factors: list[Any] = []
    if reductions:
        main = max(reductions, key=lambda block: prod(map(extent_of, block.iter_vars)))
        found = [_origin(read.source, buffers, writer) for read in main.reads]
        factors = [each for each in dict.fromkeys(found) if each is not None]
    if len(factors) > 1:
        return " * ".join(map(_shape, factors))
    source = factors[0] if factors else max(buffers[:-1] or buffers, key=_size)
    return " -> ".join(dict.fromkeys((_shape(source), _shape(buffers[-1]))))


def producer_of(buffer: Any, function: Any, blocks: Sequence[Any]) -> Any:
    """The argument of a function that a buffer is made of, or the buffer itself."""
    arguments = [param for param in function.params if hasattr(param, "shape")]
    writer = {write.source: block for block in blocks for write in block.writes}
    argument = _origin(buffer, arguments, writer)
    return buffer if argument is None else argument


def spelled(extents: Iterable[Any]) -> str:
    """Extents as text: ``3x3``."""
    return without_types("x".join(map(str, extents)))


def _function(mod: IRModule) -> Any:
    return next(iter(mod.functions.values()))


def _origin(buffer: Any, arguments: Sequence[Any], writer: Mapping[Any, Any]) -> Any:
    """The argument that an intermediate buffer, such as a padded image, is made of, or None.

    ``writer``: the block that writes each buffer. Of several arguments, this is the largest.
    """
    seen = set()
    while buffer not in arguments:
        seen.add(buffer)
        reads = writer[buffer].reads if buffer in writer else ()
        sources = [read.source for read in reads if read.source not in seen]
        if not sources:
            return None
        buffer = max(sources, key=_size)
    return buffer


def _shape(buffer: Any) -> str:
    return spelled(buffer.shape) or "scalar"


def _size(buffer: Any) -> int:
    return prod(int(extent) for extent in buffer.shape if hasattr(extent, "value"))


def extent_of(variable: Any) -> int:
    """The extent of a block's axis; 1 if it is unknown."""
    return int(getattr(variable.dom.extent, "value", 1))

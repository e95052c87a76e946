# SPDX-License-Identifier: Apache-2.0
"""Kernels that are written by hand, statement by statement, and are not scheduled again."""

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import PrimFunc


def emit_scheduled(
    builder: relax.BlockBuilder,
    function: Callable[..., list[te.Tensor]],
    arguments: Sequence[Any],
    name: str,
) -> Any:
    """Emit a call to a kernel that ``te.extern`` makes.

    ``builder``: receives the call. ``function``: makes the result tensors from the argument tensors
    with ``te.extern``.
    """
    call = builder.call_te(function, *arguments, primfunc_name_hint=name)
    variable = call.args[0]
    kernel = builder.get()[variable]
    kernel = in_block(kernel).with_attrs({"tirx.is_scheduled": True, "op_pattern": 8})
    builder.update_func(variable, kernel)
    return builder.emit(call)


def in_block(kernel: PrimFunc) -> PrimFunc:
    """Wrap the statements of a blockless kernel, as ``te.extern`` makes it, in a block.

    The statements lie directly in the outermost block. There, ``SplitLayoutRewritePreproc``
    (``split_layout_rewrite_preproc.cc``) looks for the block of an operator, and it stops if it
    finds none. The new block lies inside the outermost block and is not named "root". It holds
    nothing for schedules to change.
    """
    return kernel.with_body(SBlockRealize([], True, SBlock([], [], [], "scheduled", kernel.body)))


def whole(buffer: Any, shape: Sequence[int]) -> Any:
    """Return the region that covers a whole buffer."""
    return buffer[tuple(slice(0, extent) for extent in shape)]

# SPDX-License-Identifier: Apache-2.0
"""Kernels that are written by hand, statement by statement, and not scheduled again."""

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
    """Emit a call of a kernel that ``te.extern`` makes.

    ``builder``: takes the call. ``function``: makes the tensors of the result from those of the
    arguments, with ``te.extern``.
    """
    call = builder.call_te(function, *arguments, primfunc_name_hint=name)
    variable = call.args[0]
    kernel = builder.get()[variable]
    kernel = in_block(kernel).with_attrs({"tirx.is_scheduled": True, "op_pattern": 8})
    builder.update_func(variable, kernel)
    return builder.emit(call)


def in_block(kernel: PrimFunc) -> PrimFunc:
    """A kernel without blocks, as ``te.extern`` makes it, with its statements in a block.

    They lie in the outermost one, where ``SplitLayoutRewritePreproc``
    (``split_layout_rewrite_preproc.cc``) looks for a block of an operator, and ends if there is
    none. So they become a block inside the outermost one, which is not named "root": there is
    nothing in it for schedules to change.
    """
    return kernel.with_body(SBlockRealize([], True, SBlock([], [], [], "scheduled", kernel.body)))


def whole(buffer: Any, shape: Sequence[int]) -> Any:
    """The region of a buffer that is all of it."""
    return buffer[tuple(slice(0, extent) for extent in shape)]

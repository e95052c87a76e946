# SPDX-License-Identifier: Apache-2.0
"""Kernels that are written by hand, statement by statement, and not scheduled again."""

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te
from tvm.s_tir import SBlock, SBlockRealize


def emit_scheduled(
    builder: relax.BlockBuilder,
    function: Callable[..., list[te.Tensor]],
    arguments: Sequence[Any],
    name: str,
) -> Any:
    """Emit a call of a kernel that ``te.extern`` makes.

    ``te.extern`` leaves its statements in the outermost block, where ``SplitLayoutRewritePreproc``
    (``split_layout_rewrite_preproc.cc``) looks for a block of an operator. It finds one if the
    statements are a block inside the outermost one, which is not named "root": there is nothing in
    it for schedules to change. ``builder``: takes the call. ``function``: makes the tensors of the
    result from those of the arguments, with ``te.extern``.
    """
    call = builder.call_te(function, *arguments, primfunc_name_hint=name)
    variable = call.args[0]
    kernel = builder.get()[variable]
    body = SBlockRealize([], True, SBlock([], [], [], "scheduled", kernel.body))
    kernel = kernel.with_body(body).with_attrs({"tirx.is_scheduled": True, "op_pattern": 8})
    builder.update_func(variable, kernel)
    return builder.emit(call)

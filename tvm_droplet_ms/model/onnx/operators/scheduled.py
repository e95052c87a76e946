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

    ``te.extern`` leaves its statements in the outermost block, where
    ``SplitLayoutRewritePreproc`` (``split_layout_rewrite_preproc.cc``) looks for a block of an
    operator. It finds one if the statements are a block inside the outermost one, which is not
    named "root": there is nothing in it for schedules to change.

    Parameters
    ----------
    builder : BlockBuilder
        Takes the call.
    function : Callable[..., list[Tensor]]
        Makes the tensors of the result from those of the arguments, with ``te.extern``.
    arguments : Sequence[Expr]
        The arguments.
    name : str
        A name for the kernel.

    Returns
    -------
    result : Var
        The result.
    """
    call = builder.call_te(function, *arguments, primfunc_name_hint=name)
    variable = call.args[0]
    kernel = builder.get()[variable]
    body = SBlockRealize([], True, SBlock([], [], [], "scheduled", kernel.body))
    kernel = kernel.with_body(body).with_attrs({"tirx.is_scheduled": True, "op_pattern": 8})
    builder.update_func(variable, kernel)
    return builder.emit(call)

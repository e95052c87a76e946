# SPDX-License-Identifier: Apache-2.0
"""Fuses channel shuffles into grouped convolutions."""

from typing import Any

import tvm
from tvm import relax
from tvm.ir import IRModule

from ...bindings import operator_name, static_shape
from ...layout.channel_shuffle import inner_shuffle
from .grouped_convolution import call_packed, is_grouped, is_packable


def read_shuffled() -> tvm.transform.Pass:
    """Make a pass that fuses a channel shuffle and the grouped convolution after it.

    The kernel reads its inputs as scalars, so their order costs nothing: the shuffle becomes part
    of the index. The pass applies to prepared graphs, before ``LegalizeOps``. A shuffle without
    other users remains as dead code.
    """

    def read(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        reader = _Reader(mod)
        for variable, function in mod.functions_items():
            if isinstance(function, relax.Function):
                reader.builder_.update_func(variable, reader.visit_expr(function))
        return reader.builder_.get()

    return tvm.transform.module_pass(read, opt_level=0, name="ReadShuffled")


@relax.expr_functor.mutator
class _Reader(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if (
            operator_name(call) != "relax.nn.conv2d"
            or not is_grouped(call)
            or not is_packable(call)
        ):
            return call
        shuffled = inner_shuffle(self._value, call.args[0])
        if shuffled is None or static_shape(shuffled.source) is None:
            return call
        return call_packed(self.builder_, call, shuffled.source, shuffled.groups)

    def _value(self, expr: Any) -> Any:
        while isinstance(expr, relax.Var):
            value = self.lookup_binding(expr)
            if value is None:
                break
            expr = value
        return expr

# SPDX-License-Identifier: Apache-2.0
"""TVM's ``CombineParallelMatmul`` on models whose weights are constants, as a baseline.

The pass merges the matmuls of one input whose weights are variables, and leaves constants alone.
"""

from typing import Any

from tvm_ffi import structural_equal

from tvm import relax
from tvm.ir import GenericConst, IRModule


@relax.expr_functor.mutator
class _Unbind(relax.PyExprMutator):  # type: ignore[misc]
    """Puts parameters in the place of constants."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.constants: dict[Any, Any] = {}

    def visit_generic_const_(self, op: GenericConst) -> Any:
        """Put a parameter in the place of a constant; see ``PyExprMutator``."""
        parameter = relax.Var(f"weight_{len(self.constants)}", op.ty)
        self.constants[parameter] = op
        return parameter


def combine_matmuls(mod: IRModule) -> IRModule | None:
    """Merge the matmuls of one input. None where there is nothing to merge."""
    unbind, main = _Unbind(mod), mod["main"]
    body = unbind.visit_expr(main.body)
    function = relax.Function([*main.params, *unbind.constants], body, main.ret_ty)
    free = IRModule({"main": function.with_attr("global_symbol", "main")})
    combined = relax.transform.CombineParallelMatmul()(free)
    if structural_equal(combined, free):
        return None
    values = {parameter.name: value for parameter, value in unbind.constants.items()}
    return relax.transform.BindParams("main", values)(combined)

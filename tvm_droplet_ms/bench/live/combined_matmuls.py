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
    """Merge the matmuls of one input.

    Returns
    -------
    combined : IRModule or None
        None where there is nothing to merge.
    """
    unbind, main = _Unbind(mod), mod["main"]
    body = unbind.visit_expr(main.body)
    function = relax.Function([*main.params, *unbind.constants], body, main.ret_ty)
    free = IRModule({"main": function.with_attr("global_symbol", "main")})
    combined = relax.transform.CombineParallelMatmul()(free)
    if structural_equal(combined, free):
        return None
    values = {parameter.name: value for parameter, value in unbind.constants.items()}
    return relax.transform.BindParams("main", values)(combined)

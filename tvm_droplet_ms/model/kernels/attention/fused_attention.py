# SPDX-License-Identifier: Apache-2.0
"""The pass that fuses each attention of a graph into one kernel."""

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import relax, te, tirx, topi
from tvm.ir import IRModule
from tvm.sym import Analyzer

from ...bindings import Expr, Var, static_shape
from ...decoding.half_caches import HALVES
from ...half_products import computes_in_bfloat16
from .attention_compute import Masks, attention
from .attention_match import Attention, find_attentions
from .attention_packing import PAIR
from .operands import Operand


def fuse_attention() -> tvm.transform.Pass:
    """Make a pass that fuses each attention of a graph into one kernel.

    An attention is a float32 matmul whose result is scaled, masked, passed through a softmax over
    its last axis, and multiplied by values. No intermediate result has another user. Transposes,
    reshapes and slices of the operands become part of the indices, and a transpose of the result
    becomes part of the kernel. The pass applies to prepared graphs, before ``LegalizeOps``. It
    leaves other patterns unchanged, and leaves the replaced operators as dead code.
    """

    def fuse(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        fuser = _Fuser(mod)
        for variable, function in mod.functions_items():
            if isinstance(function, relax.Function):
                fuser.found = find_attentions(function)
                fuser.halves = computes_in_bfloat16(function)
                if fuser.found:
                    fuser.builder_.update_func(variable, fuser.visit_expr(function))
        return fuser.builder_.get()

    return tvm.transform.module_pass(fuse, opt_level=0, name="FuseAttention")


@relax.expr_functor.mutator
class _Fuser(relax.PyExprMutator):  # type: ignore[misc]
    """Replaces the result of each attention in ``found``."""

    found: Mapping[Var, Attention]
    halves: bool

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        found = self.found.get(binding.var)
        if found is not None:
            result = self.builder_.normalize(self._call(found))
            shape = static_shape(binding.var)
            if static_shape(result) != shape:
                result = relax.op.reshape(self.builder_.emit(result), shape)
            binding = relax.VarBinding(binding.var, self.builder_.normalize(result))
        super().visit_var_binding_(binding)

    def _call(self, found: Attention) -> relax.Call:
        mask = found.mask
        masks = (mask.condition, mask.blank, *mask.added)
        factors = (found.queries, found.keys, found.values, *masks)
        sources: list[Expr] = []
        for factor in factors:
            if factor is not None and not any(factor.source.same_as(each) for each in sources):
                sources.append(factor.source)

        def compute(*tensors: te.Tensor) -> te.Tensor:
            def element(factor: Operand | None) -> Any:
                for source, tensor in zip(sources, tensors, strict=True):
                    if factor is not None and factor.source.same_as(source):
                        return element_of(tensor, factor)
                return None

            queries, keys, values, condition, blank, *added = map(element, factors)
            chosen = mask.fill, mask.fills_where, blank, mask.blanks_nan
            done = Masks(mask.scale, added, condition, *chosen)
            halves = self.halves and found.extents.depth % PAIR == 0
            factors_of = (found.extents, queries, keys, values, done, found.axes)
            return attention(*factors_of, halves=halves and found.packs, packs=found.packs)

        return self.builder_.call_te(compute, *sources, primfunc_name_hint="attention")


def element_of(tensor: te.Tensor, factor: Operand) -> Callable[..., Any]:
    """Make a function from the kernel's indices to an element of a factor."""
    view = factor.view
    variables = [tirx.Var(f"i{n}", "int32") for n in range(len(view.shape))]
    analyzer = Analyzer()
    for variable, extent in zip(variables, view.shape, strict=True):
        analyzer.bind(variable, tvm.ir.Range(0, extent))
    place: Any = tirx.const(0, "int32") + view.place(*variables)
    indices: list[Any] = []
    for extent in reversed(topi.utils.get_const_tuple(tensor.shape)):
        indices.insert(0, analyzer.simplify(tirx.floormod(place, extent)))
        place = tirx.floordiv(place, extent)

    places = tirx.IndexMap(variables, indices, None)

    def element(*at: Any) -> Any:
        if factor.heads > 1:
            rows = view.shape[-2]
            at = (*at[:-2], tirx.floordiv(at[-2], rows), tirx.floormod(at[-2], rows), at[-1])
        value = tensor(*places.map_indices(list(at)))
        return value.astype("float32") if str(tensor.dtype) in HALVES else value

    return element

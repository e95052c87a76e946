# SPDX-License-Identifier: Apache-2.0
"""The pass that finds each attention of a graph and fuses it into one kernel."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import tvm
from tvm import relax, te, tirx, topi
from tvm.ir import IRModule
from tvm.sym import Analyzer

from ...bindings import Bindings, Expr, Var, is_float32, operator_name, static_shape, users_of
from ...decoding.caches import HALVES
from ...folding.numpy_folding import RESHAPES
from ...half_products import computes_in_bfloat16
from ...layout.transposes import axes_of
from .attention_compute import LEAST_WIDTH, Masks, attention
from .attention_packing import LANES, PAIR, Extents
from .few_rows import LEAST_LANES, MOST_FEW_ROWS, lanes_of
from .operands import Operand, Shape, mask_of, operand_of, scalar_of, scaling_of, shape_of


@dataclass(frozen=True)
class Attention:
    """An attention in a graph.

    ``axes``: the order of the axes of the result. ``packs``: whether keys and values are packed.
    For a few rows, possibly of several heads, they are read in place instead.
    """

    extents: Extents
    queries: Operand
    keys: Operand
    values: Operand
    mask: Masks[Operand]
    axes: Shape
    packs: bool


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


LEAST_ROWS, LEAST_COLUMNS = 8, LANES
"""Minimum extents for tiles. With fewer rows or columns, too many would be padding. ``few_rows``
handles fewer rows."""

_BEFORE_SOFTMAX = RESHAPES | {"relax.add", "relax.where", "relax.multiply", "relax.divide"}

_LEAST_SCALE = 1e-30
"""Minimum magnitude of the scale, and the inverse of the maximum; both are far within float32."""


def find_attentions(function: relax.Function) -> dict[Var, Attention]:
    """Find the attentions of a function, by the variable of their result."""
    users = users_of(function)
    found: dict[Var, Attention] = {}
    for block in function.body.blocks:
        bindings = Bindings(block, users)
        for var, value in bindings.values.items():
            if operator_name(value) == "relax.nn.softmax":
                found.update(_attention_around(bindings, var, value))
    return found


def _attention_around(bindings: Bindings, var: Var, softmax: relax.Call) -> dict[Var, Attention]:
    """Find the attention around a softmax, by the variable of its result; empty if none."""
    rank = len(shape_of(softmax))
    if rank < 3 or not is_float32(softmax) or int(softmax.attrs.axis) % rank != rank - 1:
        return {}
    for shape in _shapes(bindings, softmax.args[0]):
        found = _attention_of(bindings, var, softmax, shape)
        if found:
            return found
    return {}


def _shapes(bindings: Bindings, expr: Expr) -> list[Shape]:
    """Return the candidate shapes of the kernel's scores: the softmax's shape and earlier ones.

    Earlier shapes are needed for masks per window: these do not fit the shape after a reshape that
    joins images and windows. The rows of heads that share keys (``group_heads``) become the rows of
    one head.
    """
    shapes = [shape_of(expr)]
    *batch, rows, columns = shapes[0]
    while (name := operator_name(value := bindings.value_of(expr))) in _BEFORE_SOFTMAX:
        scores = [
            each
            for each in value.args
            if shape_of(each)[-1:] == (columns,) and prod(shape_of(each)) == prod(shapes[0])
        ]
        if not scores:
            break
        expr = scores[0]
        own = shape_of(expr)
        if len(own) < 2:
            break
        if name in RESHAPES and own[-2] != rows:
            together = own[-2] // max(1, rows)
            if not together or together * rows != own[-2] or batch[-1] % together:
                break
            own = (*batch[:-1], batch[-1] // together, own[-2], columns)
        if len(own) > 2 and own not in shapes:
            shapes.append(own)
    return shapes


def _attention_of(
    bindings: Bindings, var: Var, softmax: relax.Call, shape: Shape
) -> dict[Var, Attention]:
    """Find the attention around a softmax, given the shape of the kernel's scores."""
    *batch, rows, columns = shape
    scores = _scores(bindings, softmax.args[0], Masks(), shape)
    product = _product(bindings, var, shape)
    if scores is None or product is None:
        return {}
    (first, mask), (second, result, axes, blank, blanks_nan) = scores, product
    if shape_of(first)[-2:] != (rows, columns) or shape_of(second)[-2] != rows:
        return {}
    depth, width = shape_of(first.args[0])[-1], shape_of(second)[-1]
    if columns < LEAST_COLUMNS or width < LEAST_WIDTH or 0 in (*batch, rows, depth, width):
        return {}
    queries = operand_of(bindings, first.args[0], (*batch, rows, depth))
    keys = operand_of(bindings, first.args[1], (*batch, depth, columns))
    values = operand_of(bindings, second.args[1], (*batch, columns, width), may_scale=False)
    scale = mask.scale * queries.scale * keys.scale
    mask = replace(mask, scale=scale, blank=blank, blanks_nan=blanks_nan)
    if not _LEAST_SCALE < abs(mask.scale) < 1 / _LEAST_SCALE:
        return {}
    extents = Extents(tuple(batch), rows, columns, depth, width)
    is_few = shape_of(softmax)[-2] < LEAST_ROWS and rows <= MOST_FEW_ROWS
    packs = not is_few or not _lie_in_vectors(extents, keys, values)
    if packs and rows < LEAST_ROWS:
        return {}
    return {result: Attention(extents, queries, keys, values, mask, axes, packs)}


def _lie_in_vectors(extents: Extents, keys: Operand, values: Operand) -> bool:
    """Return whether keys and values are contiguous and divisible into vectors."""
    strides = keys.view.strides[-2], values.view.strides[-1]
    divides = lanes_of(extents.depth) >= LEAST_LANES and extents.width % LEAST_WIDTH == 0
    return strides == (1, 1) and divides


def _scores(
    bindings: Bindings, expr: Expr, mask: Masks[Operand], shape: Shape
) -> tuple[relax.Call, Masks[Operand]] | None:
    """Return the matmul of the scores, and the operations on them; None if nothing matches.

    ``mask``: the operations between ``expr`` and the softmax. ``shape``: the shape of the scores in
    the kernel, which differs from the softmax's at most in the batch axes.
    """
    value = bindings.value_of(expr)
    name, own = operator_name(value), shape_of(value)
    if not isinstance(expr, relax.Var) or bindings.only_user(expr) is None:
        return None
    if not is_float32(value) or own[-1:] != shape[-1:] or prod(own) != prod(shape):
        return None
    follow = partial(_scores, bindings)
    if name == "relax.matmul":
        return (value, mask) if _is_batched(value) else None
    if name in RESHAPES:
        return follow(value.args[0], mask, shape)
    scaling = scaling_of(bindings, value)
    if scaling is not None:
        return follow(scaling.source, replace(mask, scale=mask.scale * scaling.factor), shape)
    if mask.scale != 1:
        return None
    if name == "relax.add":
        for data, other in (value.args, value.args[::-1]):
            added = mask_of(other, own, shape) if is_float32(other) and _fits(other, own) else None
            if added is not None and shape_of(data) == own:
                found = follow(data, replace(mask, added=(*mask.added, added)), shape)
                if found is not None:
                    return found
    if name == "relax.where" and mask.condition is None and not mask.added:
        return _filled_scores(bindings, value, mask, shape)
    return None


def _filled_scores(
    bindings: Bindings, where: relax.Call, mask: Masks[Operand], shape: Shape
) -> tuple[relax.Call, Masks[Operand]] | None:
    """Match scores in which a ``where`` replaces some elements by a constant."""
    condition, *branches = where.args
    own = shape_of(where)
    if not _fits(condition, own):
        return None
    place = mask_of(condition, own, shape)
    for data, fill, fills in ([*branches[::-1], True], [*branches, False]):
        number = scalar_of(bindings, fill)
        if number is not None and place is not None and shape_of(data) == own:
            filled = replace(mask, condition=place, fill=number, fills_where=fills)
            return _scores(bindings, data, filled, shape)
    return None


class _Product(NamedTuple):
    """The product of weights and values.

    ``result``: the variable of the product, or of the transpose that follows it. ``axes``: the
    order of the result's axes. ``blank``: the mask of rows whose weights are set to 0.
    ``blanks_nan``: whether NaN weights are set to 0.
    """

    matmul: relax.Call
    result: Var
    axes: Shape
    blank: Operand | None
    blanks_nan: bool


def _product(bindings: Bindings, var: Var, shape: Shape) -> _Product | None:
    """Find the product of a softmax and values; None if there is none.

    ``var``: the variable of the softmax. ``shape``: the shape of the scores in the kernel.
    """
    numbers = _without_nan(bindings, var)
    blanks_nan = numbers is not None
    weights = var if numbers is None else numbers
    user, blank = bindings.only_user(weights), None
    value: Any = None
    while (value := bindings.values.get(user)) is not None:
        name = operator_name(value)
        if name == "relax.where" and blank is None:
            blank = _blank_rows(bindings, value, weights, shape)
            if blank is None:
                return None
        elif name not in RESHAPES or shape_of(user)[-1:] != shape[-1:]:
            break
        weights, user = user, bindings.only_user(user)
    if operator_name(value) != "relax.matmul" or not value.args[0].same_as(weights):
        return None
    if not _is_batched(value) or not is_float32(value):
        return None
    identity = tuple(range(len(shape)))
    heads = (*shape[:-1], shape_of(value)[-1])
    last = user
    follower = bindings.only_user(last)
    if operator_name(bindings.values.get(follower)) in RESHAPES:
        last, follower = follower, bindings.only_user(follower)
    if shape_of(last) == heads and follower is not None:
        transposed = bindings.call_of(follower, "relax.permute_dims")
        if transposed is not None:
            axes = axes_of(transposed, len(heads))
            if axes[-1] == len(heads) - 1:
                return _Product(value, follower, axes, blank, blanks_nan)
    return _Product(value, user, identity, blank, blanks_nan)


def _without_nan(bindings: Bindings, softmax: Var) -> Var | None:
    """Return the variable of the ``where`` that sets NaN weights to 0; None if there is none."""
    users = bindings.users.get(softmax, [])
    if len(users) != 2:
        return None
    check, choice = (bindings.values.get(user) for user in users)
    if choice is None or [*map(operator_name, (check, choice))] != ["relax.isnan", "relax.where"]:
        return None
    condition, chosen, other = choice.args
    is_whole = shape_of(choice) == shape_of(softmax) and other.same_as(softmax)
    if not is_whole or not condition.same_as(users[0]) or scalar_of(bindings, chosen) != 0.0:
        return None
    return users[1] if bindings.only_user(users[0]) is not None else None


def _blank_rows(
    bindings: Bindings, where: relax.Call, weights: Var, shape: Shape
) -> Operand | None:
    """Return the mask of rows that a ``where`` sets to 0, as ONNX's ``Attention`` without keys."""
    condition, chosen, other = where.args
    own = shape_of(where)
    is_row = shape_of(condition)[-1:] == (1,) and _fits(condition, own)
    if not is_row or scalar_of(bindings, chosen) != 0.0 or not other.same_as(weights):
        return None
    return mask_of(condition, own, shape) if shape_of(weights) == own else None


def _is_batched(matmul: relax.Call) -> bool:
    """Return whether both operands are float32 with the same batch axes, at least one."""
    left, right = (shape_of(operand) for operand in matmul.args)
    return len(left) > 2 and left[:-2] == right[:-2] and all(map(is_float32, matmul.args))


def _fits(expr: Expr, shape: Shape) -> bool:
    """Return whether a tensor broadcasts to a shape."""
    own = static_shape(expr)
    if own is None or len(own) > len(shape):
        return False
    return all(n in (1, wanted) for n, wanted in zip(own[::-1], shape[::-1], strict=False))

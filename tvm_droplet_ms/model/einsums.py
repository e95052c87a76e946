# SPDX-License-Identifier: Apache-2.0
"""Einsums as matrix products.

TVM computes ``relax.einsum`` as one loop nest without tiles to pack, and no pass recognizes
attention in it. Axes are classified as for "Strided batched GEMM" (Shi et al., "Tensor Contractions
with Extended BLAS Kernels on CPU and GPU", 2016, section II).
"""

from collections import Counter
from math import prod
from string import ascii_letters

from tvm import relax

from .bindings import Bindings, Expr, static_shape
from .rewriting import Emit, operator_pass

Shape = tuple[int, ...]


@operator_pass("ExpandEinsums", ["relax.einsum"])
def expand_einsums(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Make a pass that replaces each ``relax.einsum`` of two operands by a matrix product.

    The pass transposes and joins axes before and after the product where necessary. It rewrites
    einsums of floats with static shapes that sum over at least one axis. Each axis must occur at
    most once per operand, and in the result or in both operands.
    """
    operands = bindings.value_of(value.args[0])
    if not isinstance(operands, relax.Tuple) or len(operands.fields) != 2:
        return None
    first, second = operands.fields
    high, wide = static_shape(first), static_shape(second)
    if high is None or wide is None or 0 in high + wide or "float" not in str(value.ty.dtype):
        return None
    found = explicit_subscripts(value.attrs.subscripts, (len(high), len(wide)))
    if found is None:
        return None
    (left, right), result = found
    extents = dict(zip(left, high, strict=True))
    if any(extents.setdefault(axis, n) != n for axis, n in zip(right, wide, strict=True)):
        return None
    shared = [axis for axis in left if axis in right]
    batch = [axis for axis in result if axis in shared]
    summed = [axis for axis in shared if axis not in result]
    rows, columns = ([a for a in result if a in own and a not in shared] for own in (left, right))
    kinds = {*batch, *summed, *rows, *columns}
    if not summed or kinds != {*left, *right} or not {*result} <= kinds:
        return None

    def size(*groups: list[str]) -> Shape:
        return tuple(prod(extents[axis] for axis in group) for group in groups)

    each = [[axis] for axis in batch]
    # Without batch axes, all rows share the matrix on the right, so row axes can stay separate.
    lines = [[axis] for axis in rows] if not batch and len(rows) > 1 else [rows]
    a = _arranged(first, left, [*batch, *rows, *summed], size(*each, *lines, summed), emit)
    b = _arranged(second, right, [*batch, *summed, *columns], size(*each, summed, columns), emit)
    product = emit(relax.op.matmul(a, b))
    order = [*batch, *rows, *columns]
    whole = size(*([axis] for axis in order))
    if static_shape(product) != whole:
        product = emit(relax.op.reshape(product, whole))
    if order != list(result):
        return relax.op.permute_dims(product, [order.index(axis) for axis in result])
    # Return the value, not its variable, so that the result is not a copy of another variable.
    return bindings.values[product]


def explicit_subscripts(subscripts: str, ranks: tuple[int, ...]) -> tuple[list[str], str] | None:
    """Return the letters of each operand and of the result, with ellipses expanded.

    If the subscripts have no result, it is inferred. ``subscripts``: in the notation of NumPy's
    ``einsum``. ``ranks``: ranks of the operands. Returns None if the subscripts and the ranks do
    not agree, or if an operand or the result has a letter twice.
    """
    text = subscripts.replace(" ", "")
    left, arrow, result = text.partition("->")
    operands = left.split(",")
    if len(operands) != len(ranks):
        return None
    free = [letter for letter in ascii_letters if letter not in text]
    widest = ""
    for place, rank in enumerate(ranks):
        letters = operands[place].replace("...", "")
        count = rank - len(letters)
        if count < 0 or (count > 0 and "..." not in operands[place]):
            return None
        rest = "".join(free[:count])[::-1]
        widest = max(widest, rest, key=len)
        operands[place] = operands[place].replace("...", rest)
    if arrow:
        result = result.replace("...", widest)
    else:
        counts = Counter("".join(operands))
        once = sorted(letter for letter, n in counts.items() if n == 1 and letter not in widest)
        result = widest + "".join(once)
    if any(len(set(letters)) < len(letters) for letters in (*operands, result)):
        return None
    return operands, result


def _arranged(operand: Expr, letters: str, order: list[str], shape: Shape, emit: Emit) -> Expr:
    """Permute the axes of an operand, and reshape it to join adjacent axes."""
    if order != list(letters):
        operand = emit(relax.op.permute_dims(operand, [letters.index(axis) for axis in order]))
    if static_shape(operand) != shape:
        operand = emit(relax.op.reshape(operand, shape))
    return operand

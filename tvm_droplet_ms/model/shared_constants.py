# SPDX-License-Identifier: Apache-2.0
"""Merges equal constants of Relax functions.

Folding makes a constant for each use of a weight. Packing makes a packed copy for each call whose
weights are not all the same. For example, the steps of a recurrent network share a bias: if each
step has a copy, its kernel has a copy of all its weights too.
"""

from collections import defaultdict
from typing import Any

import numpy as np

import tvm
from tvm import relax
from tvm.ir import GenericConst, IRModule

from .bindings import Expr, bits_of
from .rewriting import replace_constants

_FIRST_BYTES = 1024
"""Number of leading bytes to compare before whole constants are compared."""


def share_constants() -> tvm.transform.Pass:
    """Make a pass that replaces each constant by the first constant of equal values and type.

    Except for bfloat16, it does not change constants of a type that NumPy lacks.
    """

    def run(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        functions = [f for _, f in mod.functions_items() if isinstance(f, relax.Function)]
        firsts = _firsts([c for function in functions for c in _constants(function)])
        return replace_constants(mod, lambda op: firsts.get(op, op)) if firsts else mod

    return tvm.transform.module_pass(run, opt_level=0, name="ShareConstants")


def _constants(function: relax.Function) -> list[GenericConst]:
    found: dict[GenericConst, None] = {}

    def visit(expr: Expr) -> None:
        if isinstance(expr, GenericConst):
            found[expr] = None

    relax.analysis.post_order_visit(function, visit)
    return list(found)


def _firsts(constants: list[GenericConst]) -> dict[GenericConst, GenericConst]:
    """Map each constant that equals an earlier constant to the first equal constant."""
    seen: dict[Any, list[tuple[GenericConst, np.ndarray]]] = defaultdict(list)
    firsts: dict[GenericConst, GenericConst] = {}
    for constant in dict.fromkeys(constants):
        array = bits_of(constant)
        if array is None:
            continue
        values = array.reshape(-1).view("uint8")
        alike = seen[str(constant.ty), values[:_FIRST_BYTES].tobytes()]
        first = next((other for other, known in alike if np.array_equal(known, values)), None)
        if first is None:
            alike.append((constant, values))
        else:
            firsts[constant] = first
    return firsts

# SPDX-License-Identifier: Apache-2.0
"""The passes for kernels whose schedules are applied."""

from collections.abc import Sequence
from typing import Any

from tvm_ffi.structural import structural_map, structural_walk

import tvm
from tvm.ir import IRModule
from tvm.ir.expr import Call
from tvm.target import Target
from tvm.tirx import Cast, FloatImm, Max, Min, PrimFunc

from ...design_space.dot_products.rounded_vectors import RoundVectors
from ...design_space.matrix_tiles.kept_tiles import KeepTiles
from ...design_space.register_tiles.partitions import NarrowPartitions
from ...measure.prefetch.prefetch_weights import PrefetchWeights
from ...model.residuals import overwrite_residuals

_BYTES = ("int8", "uint8")
_ROUNDINGS = ("tirx.round", "tirx.nearbyint")


def finishing_passes(
    target: Target, packing: Sequence[tvm.transform.Pass]
) -> list[tvm.transform.Pass]:
    """Return the passes for scheduled kernels, which are measured with most of them too.

    ``packing``: the passes that split off the packing of weights. On other targets than CPUs, no
    others are needed.
    """
    if target.kind.name != "llvm":
        return list(packing)
    # `measure.build_scheduled` also prefetches, keeps tiles, rounds and narrows.
    before = [keep_nan(), PrefetchWeights()]
    kept = [KeepTiles(), overwrite_residuals(), RoundVectors(target), NarrowPartitions()]
    return [*before, *packing, *kept]


def keep_nan() -> tvm.transform.Pass:
    """Return a pass that makes ``max`` and ``min`` with a constant propagate NaN, at no cost.

    It puts the constant first, which changes structural hashes. TVM and CPUs compute ``max(a, b)``
    as ``a if a > b else b``: if an operand is NaN, the result is the second operand. TOPI writes
    the constant second in ``relu``, in ``clip``, and around the arguments of its ``fast_exp`` and
    ``fast_erf``. ONNX Runtime and PyTorch propagate NaN in all of these. Quantized types have no
    NaN: there a NaN becomes the limit, as in ONNX Runtime.
    """

    def run(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        changed = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for variable, function in mod.functions_items():
            if isinstance(function, PrimFunc) and not _quantizes(function):
                body = structural_map(function.body, ((Max, Min), _number_first))
                if not body.same_as(function.body):
                    changed.update_func(variable, function.with_body(body))
        return changed

    return tvm.transform.module_pass(run, opt_level=0, name="KeepNan")


def _number_first(limit: Any) -> Any:
    is_number = isinstance(limit.b, FloatImm) and not isinstance(limit.a, FloatImm)
    return type(limit)(limit.b, limit.a) if is_number else limit


def _quantizes(function: PrimFunc) -> bool:
    """Return whether a kernel computes 8-bit integers, or rounds.

    8-bit integers that the same kernel consumes stay rounded floats.
    """
    found: list[Any] = []
    structural_walk(function.body, (Cast, found.append))
    if any(str(cast.ty.dtype) in _BYTES for cast in found):
        return True
    calls: list[Any] = []
    structural_walk(function.body, (Call, calls.append))
    return any(str(getattr(call.op, "name", "")) in _ROUNDINGS for call in calls)

# SPDX-License-Identifier: Apache-2.0
"""From a Relax graph to kernels, and from kernels to an executable."""

import math

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target
from tvm.tirx import PrimFunc

from ...model.kernels.lowering_passes import lowering_passes
from ...model.shared_constants import share_constants
from ...session.errors import ModelError
from .kernel_objects import KernelObjects
from .linked_model import LinkedModel
from .packing import WeightPacker

_NO_SHAPE = "emit_te now only supports Tensor that has ShapeExpr shape"
"""TVM's message on a tensor of unknown extents (``relax/utils.py``)."""


def lower(mod: IRModule, target: Target, *, is_reference: bool = False) -> IRModule:
    """Turn the operators of a graph into kernels, and fuse them.

    ``is_reference``: whether to take TVM's own kernels only, to compare others with. Returns Relax
    functions that call TIR functions, one for each kernel to tune; see ``lowering_passes``. Extract
    tasks from this module, and apply a database to this module. Raises ``ModelError`` if a kernel
    would read a tensor of unknown extents.
    """
    with target:
        try:
            return tvm.transform.Sequential(lowering_passes(is_plain=is_reference))(mod)
        except Exception as error:
            if _NO_SHAPE not in str(error):
                raise
    raise ModelError(
        "the model computes with a tensor whose extents depend on data, and TVM makes no kernels "
        "for it: export the model with fixed extents, or bind the input that decides them with "
        "constants={name: value} (--constant NAME=VALUE)"
    )


def build(lowered: IRModule, database: ms.Database, target: Target) -> relax.VMExecutable:
    """Compile a lowered module with the best schedule of each kernel, in this process.

    Weights are packed as the schedules want them, once, while this compiles
    (``SplitLayoutRewritePreproc`` splits the packing off, ``FoldConstant`` runs it). ``lowered``:
    the result of ``lower``. ``database``: records of the kernels. A kernel without one is compiled
    as it is. For ``relax.VirtualMachine``.
    """
    passes = [relax.transform.FoldConstant(), relax.transform.DeadCodeElimination()]
    with target:
        scheduled = tvm.transform.Sequential(passes)(_schedule(lowered, database))
    return tvm.compile(scheduled, target)


class ModelBuilder:
    """Compiles a model again and again, and only what has changed."""

    def __init__(self, objects: KernelObjects, target: Target) -> None:
        self._objects = objects
        self._pack = WeightPacker(objects)
        self._target = target

    def build(
        self, lowered: IRModule, database: ms.Database, late_at: float = math.inf
    ) -> LinkedModel:
        """Compile a lowered module with the best schedule of each kernel; see ``build``.

        ``late_at`` is that of ``KernelObjects.compile``.
        """
        with self._target:
            scheduled = _schedule(lowered, database)
            # What packs weights and the kernels themselves, before the first is waited for.
            self._objects.begin(_kernels(scheduled), late_at)
            packed = self._pack(scheduled, late_at)
            # What packs a call's weights packs all of them: two calls that share one of two
            # weights have got two copies of it.
            packed = share_constants()(packed)
            mod = relax.get_pipeline("default")(packed)
        kernels = _kernels(mod)
        paths = self._objects.compile(kernels, late_at)
        for name in kernels:
            mod.update_func(mod.get_global_var(name), relax.ExternFunc(name))
        return LinkedModel(mod, paths, self._objects, self._target)


def _kernels(mod: IRModule) -> dict[str, PrimFunc]:
    """The functions that are compiled, by name."""
    return {
        variable.name_hint: function
        for variable, function in mod.functions_items()
        if isinstance(function, PrimFunc)
    }


def _schedule(lowered: IRModule, database: ms.Database) -> IRModule:
    """Apply schedules, with the packing of weights in functions of their own."""
    with database:
        scheduled = relax.transform.MetaScheduleApplyDatabase()(lowered)
    return relax.transform.SplitLayoutRewritePreproc()(scheduled)

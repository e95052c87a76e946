# SPDX-License-Identifier: Apache-2.0
"""From a Relax graph to kernels, and from kernels to an executable with packed weights.

If a kernel's schedule changes the layout of a weight, ``SplitLayoutRewritePreproc`` splits the
kernel into a function that packs the weight and one that uses it. TVM's ``FoldConstant`` would
compile each packing function separately, and again for every build of the model.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tvm_ffi import structural_hash

import tvm
from tvm import relax
from tvm.ir import GenericConst, IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.support import cc
from tvm.target import Target
from tvm.tirx import PrimFunc

from ...compat.loop_vectorizer import without_loop_vectorizer
from ...compat.quiet import without_lines
from ...model.bindings import Bindings, Expr, Var, operator_name, static_shape, values_of
from ...model.kernels.lowering_passes import lowering_passes
from ...model.rewriting import Emit, Rewrite, binding_pass
from ...model.shared_constants import share_constants
from ...session.errors import ModelError, first_line
from .finishing_passes import finishing_passes
from .kernel_objects import KernelObjects
from .linked_model import LinkedModel
from .naming import with_suffix

_NO_SHAPE = "emit_te now only supports Tensor that has ShapeExpr shape"
"""TVM's error message for a tensor of unknown extents (``relax/utils.py``)."""

Constants = tuple[GenericConst, ...]


def kernels_of(mod: IRModule) -> dict[str, PrimFunc]:
    """Return the TIR functions of a module by name."""
    return {
        variable.name_hint: function
        for variable, function in mod.functions_items()
        if isinstance(function, PrimFunc)
    }


class WeightPacker:
    """Evaluates calls with constant arguments, and caches the results for the last module."""

    def __init__(self, objects: KernelObjects) -> None:
        self._objects = objects
        self._libraries = 0
        # A weight that two kernels use may have two packed layouts.
        self._packed: dict[tuple[int, Constants], Constants] = {}

    def __call__(self, mod: IRModule, late_at: float = math.inf) -> IRModule:
        """Replace calls with constant arguments by their results."""
        functions = kernels_of(mod)
        calls = [(call, name) for call, name in _constant_calls(mod) if name in functions]
        hashes = {name: structural_hash(functions[name]) for _, name in calls}
        keys = {call: (hashes[name], _constants(call)) for call, name in calls}
        missing = [(call, name) for call, name in calls if keys[call] not in self._packed]
        if missing:
            library = self._load({name: functions[name] for _, name in missing}, late_at)
            for call, name in missing:
                self._packed[keys[call]] = _run(library[name], call)
        self._packed = {key: self._packed[key] for key in keys.values()}
        return _use({call: self._packed[key] for call, key in keys.items()})(mod)

    def forget(self) -> None:
        """Drop the results; calls of the next module are evaluated again."""
        self._packed = {}

    def _load(self, functions: Mapping[str, PrimFunc], late_at: float) -> Any:
        paths = self._objects.compile(functions, late_at)
        library = self._objects.folder / f"packing{self._libraries}.so"
        self._libraries += 1
        cc.create_shared(str(library), [str(path) for path in paths.values()])
        return tvm.runtime.load_module(str(library))


def _constant_calls(mod: IRModule) -> Iterator[tuple[relax.Call, str]]:
    """Yield the kernel calls in ``main`` with constant arguments, and the kernel names."""
    for value in values_of(mod["main"]):
        if operator_name(value) == "relax.call_tir" and len(value.args) == 2:
            constants = _constants(value)
            if constants and all(isinstance(argument, GenericConst) for argument in constants):
                yield value, value.args[0].name_hint


def _constants(call: relax.Call) -> Constants:
    arguments = call.args[1]
    return tuple(arguments.fields) if isinstance(arguments, relax.Tuple) else (arguments,)


def _run(function: Any, call: relax.Call) -> Constants:
    kinds = call.ty_args
    if len(kinds) == 1 and isinstance(kinds[0], relax.TupleType):
        kinds = kinds[0].fields
    tensors = [
        tvm.runtime.empty([int(extent) for extent in kind.shape], str(kind.dtype)) for kind in kinds
    ]
    function(*(constant.value for constant in _constants(call)), *tensors)
    return tuple(relax.const(tensor) for tensor in tensors)


def _use(results: Mapping[relax.Call, Constants]) -> tvm.transform.Pass:
    def make_rewrite(bindings: Bindings) -> Rewrite:
        def rewrite(_var: Var, value: Expr, _emit: Emit) -> Expr | None:
            if isinstance(value, relax.TupleGetItem):
                found = results.get(bindings.values.get(value.tuple_value))
                return None if found is None else found[value.index]
            found = results.get(value)
            return found[0] if found is not None and len(found) == 1 else None

        return rewrite

    passes = [
        binding_pass("UsePackedWeights", make_rewrite, ["relax.call_tir"]),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
    ]
    return tvm.transform.Sequential(passes)


def lower(mod: IRModule, target: Target, *, is_reference: bool = False) -> IRModule:
    """Lower the operators of a graph to fused kernels: Relax functions that call TIR functions.

    ``is_reference``: whether to use only TVM's own kernels, as a reference for others. Raises
    ``ModelError`` if a kernel would read a tensor of unknown extents, or TVM has no kernel for an
    extent of 0.
    """
    # TVM prints this for each lookup; the indices are clipped before.
    with target, without_lines("Fast mode segfaults"):
        try:
            return tvm.transform.Sequential(lowering_passes(is_plain=is_reference))(mod)
        except Exception as error:
            empty = [p.name for p in mod["main"].params if 0 in (static_shape(p) or ())]
            if empty and _NO_SHAPE not in str(error):
                raise ModelError(
                    f"input {empty[0]!r} has an extent of 0, for which TVM makes no kernels here "
                    f"({first_line(error)}): pass extents of at least 1"
                ) from error
            if _NO_SHAPE not in str(error):
                raise
    raise ModelError(
        "the model computes with a tensor whose extents depend on data, and TVM makes no kernels "
        "for it: export the model with fixed extents, or bind the input that decides them with "
        "constants={name: value} (--constant NAME=VALUE)"
    )


def build(lowered: IRModule, database: ms.Database, target: Target) -> relax.VMExecutable:
    """Compile a lowered module with the best schedule of each kernel, in this process.

    Weights are packed to the layouts of the schedules once, at compile time:
    ``SplitLayoutRewritePreproc`` splits the packing off, and ``FoldConstant`` runs it.
    """
    passes = [relax.transform.FoldConstant(), relax.transform.DeadCodeElimination()]
    with target:
        scheduled = tvm.transform.Sequential(passes)(_schedule(lowered, database, target))
    return tvm.compile(scheduled, without_loop_vectorizer(target))


class ModelBuilder:
    """Compiles a model incrementally: only changed kernels are recompiled.

    ``suffix``: appended to the kernel names.
    """

    def __init__(self, objects: KernelObjects, target: Target, suffix: str = "") -> None:
        self._objects = objects
        self._suffix = suffix
        self._pack = WeightPacker(objects)
        self._target = target

    def forget_weights(self) -> None:
        """Drop the packed weights of the last build."""
        self._pack.forget()

    def build(
        self, lowered: IRModule, database: ms.Database, late_at: float = math.inf
    ) -> LinkedModel:
        """Compile a lowered module with the best schedule of each kernel; see ``build``."""
        with self._target:
            scheduled = _schedule(lowered, database, self._target)
            # Start compiling packing functions and kernels before waiting for any of them.
            self._objects.begin(kernels_of(scheduled), late_at)
            packed = self._pack(scheduled, late_at)
            # A packing function packs all weights of a call: two calls that share one of two
            # weights get two copies of it.
            packed = share_constants()(packed)
            # The pipeline also makes kernels, for operators such as a cumulative sum.
            mod = with_suffix(relax.get_pipeline("default")(packed), self._suffix)
        kernels = kernels_of(mod)
        paths = self._objects.compile(kernels, late_at)
        for name in kernels:
            mod.update_func(mod.get_global_var(name), relax.ExternFunc(name))
        return LinkedModel(
            mod, paths, self._objects.folder, self._target, kernels, owner=self._objects
        )


def _schedule(lowered: IRModule, database: ms.Database, target: Target) -> IRModule:
    """Apply schedules, with the packing of weights in separate functions."""
    with database:
        scheduled = relax.transform.MetaScheduleApplyDatabase()(lowered)
    finish = finishing_passes(target, [relax.transform.SplitLayoutRewritePreproc()])
    return tvm.transform.Sequential(finish)(scheduled)

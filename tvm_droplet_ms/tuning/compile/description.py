# SPDX-License-Identifier: Apache-2.0
"""What a tuned library says about itself (``runtime.library_info``)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target
from tvm.target.codegen import llvm_get_cpu_features

from ...compat.versions import package_version
from ...frontends.imported import ImportedModel
from ...model.bindings import shape_of_type
from ...model.decoding.in_place import GIVEN_AWAY
from ...runtime.library_info import LibraryInfo, TensorInfo, flags_of_features
from ...runtime.shapes import Bucket, Buckets, OpenShape
from .compiled_model import CompiledModel

_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "tvm-droplet-ms")


def describe(
    compiled: CompiledModel,
    imported: ImportedModel,
    inputs: Sequence[np.ndarray],
    target: Target,
    threads: int,
) -> LibraryInfo:
    """Describe a model of one shape, which runs twice.

    ``inputs``: values for the runs.
    """
    outputs, found = compiled.output_memory(inputs)
    # Another branch may return other memory.
    aliases = None if _has_branches(imported.mod) else found
    names, extents = imported.output_names, imported.output_extents
    if len(names) != len(outputs):
        names = tuple(f"output_{place}" for place in range(len(outputs)))
    if len(extents) != len(outputs):
        extents = ((),) * len(outputs)
    given = tuple(spec.shape for spec in imported.inputs)
    identity = imported.identity
    return LibraryInfo(
        model="" if identity is None else identity.name,
        digest="" if identity is None else f"{identity.network}-{identity.weights}",
        inputs=tuple(TensorInfo(spec.name, spec.dtype, spec.extents) for spec in imported.inputs),
        outputs=tuple(
            TensorInfo(name, dtype, of_axes)
            for name, (_, dtype), of_axes in zip(names, outputs, extents, strict=True)
        ),
        buckets=Buckets((Bucket(given, _output_shapes(imported.mod, outputs)),)),
        threads=threads,
        written=_written(imported),
        aliases=aliases,
        cpu_flags=flags_of_features({str(name) for name in llvm_get_cpu_features(target)}),
        target=str(target),
        versions={name: package_version(name) for name in _PACKAGES},
    )


def _output_shapes(
    mod: IRModule, found: Sequence[tuple[tuple[int, ...], str]]
) -> tuple[OpenShape, ...]:
    """The shapes of the outputs: those of a run, with open extents where the model has none."""
    kinds = [mod["main"].ret_ty]
    while any(isinstance(kind, relax.TupleType) for kind in kinds):
        kinds = [each for kind in kinds for each in getattr(kind, "fields", [kind])]
    return tuple(
        shape if shape_of_type(kind) is not None else (None,) * len(shape)
        for (shape, _), kind in zip(found, kinds, strict=True)
    )


def _has_branches(mod: IRModule) -> bool:
    found: list[Any] = []

    def note(expression: Any) -> None:
        if isinstance(expression, relax.If):
            found.append(expression)

    for _, function in mod.functions_items():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function.body, note)
    return bool(found)


def _written(imported: ImportedModel) -> tuple[int, ...]:
    """The inputs that the caller gives away, so that the model may write to them."""
    main = imported.mod["main"]
    given = {str(name) for name in (main.attrs or {}).get(GIVEN_AWAY, {})}
    return tuple(place for place, each in enumerate(main.params) if each.name in given)


def join_infos(infos: Sequence[LibraryInfo]) -> LibraryInfo:
    """Describe the library of several shapes of a model, before padding was tested."""
    aliases = {info.aliases for info in infos}
    return replace(
        infos[0],
        buckets=Buckets(tuple(info.buckets.buckets[0] for info in infos)),
        functions=tuple(entry_name(number) for number in range(len(infos))),
        aliases=infos[0].aliases if len(aliases) == 1 else None,
        why_not_padded="padding was not tested",
    )


def entry_name(number: int) -> str:
    """Return a joined library's function for a model by its index: main, main_1, main_2."""
    return f"main_{number}" if number else "main"

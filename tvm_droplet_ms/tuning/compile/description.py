# SPDX-License-Identifier: Apache-2.0
"""What a tuned library says about itself (``runtime.library_info``)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tvm.target import Target
from tvm.target.codegen import llvm_get_cpu_features

from ...compat.versions import package_version
from ...frontends.imported import ImportedModel
from ...runtime.library_info import LibraryInfo, TensorInfo, flags_of_features
from ...runtime.shapes import Bucket, Buckets
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
    outputs, aliases = compiled.output_memory(inputs)
    names = imported.output_names
    if len(names) != len(outputs):
        names = tuple(f"output_{place}" for place in range(len(outputs)))
    given = tuple(spec.shape for spec in imported.inputs)
    identity = imported.identity
    return LibraryInfo(
        model="" if identity is None else identity.name,
        digest="" if identity is None else f"{identity.network}-{identity.weights}",
        inputs=tuple(TensorInfo(spec.name, spec.dtype) for spec in imported.inputs),
        outputs=tuple(
            TensorInfo(name, dtype) for name, (_, dtype) in zip(names, outputs, strict=True)
        ),
        buckets=Buckets((Bucket(given, tuple(shape for shape, _ in outputs)),)),
        threads=threads,
        written=tuple(sorted({source for _, source in aliases if source is not None})),
        aliases=aliases,
        cpu_flags=flags_of_features({str(name) for name in llvm_get_cpu_features(target)}),
        target=str(target),
        versions={name: package_version(name) for name in _PACKAGES},
    )


def join_infos(infos: Sequence[LibraryInfo]) -> LibraryInfo:
    """Describe the library of several shapes of a model, before padding was tested."""
    aliases = {alias for info in infos for alias in info.aliases or ()}
    return replace(
        infos[0],
        buckets=Buckets(tuple(info.buckets.buckets[0] for info in infos)),
        functions=tuple(entry_name(number) for number in range(len(infos))),
        written=tuple(sorted({place for info in infos for place in info.written})),
        aliases=tuple(sorted(aliases, key=str)),
        why_not_padded="padding was not tested",
    )


def entry_name(number: int) -> str:
    """Return a joined library's function for a model by its index: main, main_1, main_2."""
    return f"main_{number}" if number else "main"

# SPDX-License-Identifier: Apache-2.0
"""Builds and exports a candidate, in a worker."""

import os
import tempfile

from tvm import IRModule
from tvm.runtime import Module, Tensor
from tvm.target import Target

from ..compat.lazy_intrinsics import import_intrinsics
from ..compat.loop_vectorizer import without_loop_vectorizer
from ..design_space.dot_products.rounded_vectors import RoundVectors
from ..design_space.matrix_tiles.kept_tiles import KeepTiles
from ..design_space.register_tiles.partitions import NarrowPartitions
from .prefetch.prefetch_weights import PrefetchWeights


def build_scheduled(
    mod: IRModule, target: Target, _params: "dict[str, Tensor] | None" = None
) -> Module:
    """Build a scheduled module.

    Like ``default_build`` (``meta_schedule/builder/local_builder.py``), but imports only the tensor
    intrinsics of the target's backend. Importing the intrinsics of all backends takes 14 to 20 s.
    Most builds need none: ``tensorize`` put the intrinsic's implementation into the module during
    scheduling. But CUDA's ``mma_store`` looks up a function that its intrinsics register.
    ``_params`` are ignored, as in ``default_build``. TVM's errors propagate.
    """
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock
    from tvm.tirx import build

    import_intrinsics(target)
    if target.kind.name == "llvm":
        mod = RoundVectors(target)(KeepTiles()(PrefetchWeights()(mod)))
        mod = NarrowPartitions()(mod)
    mod = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod)
    # CUDA's compiler callback reads the architecture from the current target, or else from the
    # device. The device's driver reserves more address space than a build worker may use.
    with target:
        return build(mod, target=without_loop_vectorizer(target))


def source_of(mod: IRModule, target: Target) -> str:
    """Build a scheduled module and return its LLVM IR, or for a GPU the source of its kernels."""
    module = build_scheduled(mod, target)
    if target.kind.name == "llvm":
        return str(module.inspect_source("ll"))
    # An exported and reloaded library no longer has the source.
    return "\n".join(str(kernels.inspect_source(kernels.kind)) for kernels in module.imports)


def export_tar(module: Module) -> str:
    """Export a module as object files, which the loading machine links.

    Returns the path, in the candidate's folder: the temporary directory of the build.
    """
    from tvm.support.tar import tar

    path = os.path.join(tempfile.gettempdir(), f"module.{tar.output_format}")
    module.export_library(path, fcompile=tar)
    return path


def export_shared_library(module: Module) -> str:
    """Export a module as a shared library for this machine, which loads without linking.

    Returns the path, as ``export_tar`` does.
    """
    path = os.path.join(tempfile.gettempdir(), "module.so")
    # Without the C++ library and start-up files, linking takes a third of the time. Without
    # ``-lm``, math functions bind to their oldest versions: ``expf`` takes twice as long.
    module.export_library(path, options=["-nostdlib", "-Wl,--no-as-needed", "-lm"])
    return path


def prepare_to_build(target: Target | None = None) -> None:
    """Build a small module, so that forked workers start with the compiler initialized.

    ``target``: the target of the builds, if known. Importing a GPU's tensor intrinsics takes
    seconds, and otherwise each worker would import them before its first build.
    """
    from tvm import te

    if target is not None and target.kind.name != "llvm":
        import_intrinsics(target)

    a = te.placeholder((1,), name="a")
    b = te.compute((1,), lambda i: a[i] + 1.0, name="b")
    mod = IRModule({"main": te.create_prim_func([a, b])})
    with tempfile.TemporaryDirectory() as directory:
        module = build_scheduled(mod, Target("llvm"))
        module.export_library(os.path.join(directory, "module.so"))

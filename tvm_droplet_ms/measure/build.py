# SPDX-License-Identifier: Apache-2.0
"""Build and export of a candidate, in a worker."""

import os
import tempfile

from tvm import IRModule
from tvm.runtime import Module, Tensor
from tvm.target import Target

from ..compat.lazy_intrinsics import import_intrinsics
from ..compat.loop_vectorizer import without_loop_vectorizer
from ..design_space.dot_products.rounded_vectors import RoundVectors
from ..design_space.matrix_tiles.kept_tiles import KeepTiles
from ..prefetch.prefetch_weights import PrefetchWeights


def build_scheduled(
    mod: IRModule, target: Target, _params: "dict[str, Tensor] | None" = None
) -> Module:
    """Build a scheduled module.

    Like ``default_build`` (``meta_schedule/builder/local_builder.py``), but imports only the tensor
    intrinsics of the target's backend. Those of every backend take 14 to 20 s.
    Most builds need none: ``tensorize`` put an intrinsic's implementation into the module when it
    was scheduled. CUDA's ``mma_store`` looks up a function that its intrinsics register.
    ``_params`` are ignored, as ``default_build`` does. TVM's errors are passed on.
    """
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock
    from tvm.tirx import build

    import_intrinsics(target)
    if target.kind.name == "llvm":
        mod = RoundVectors(target)(KeepTiles()(PrefetchWeights()(mod)))
    mod = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod)
    # CUDA's compiler callback asks the current target for the architecture, and without one the
    # device. A device's driver reserves more addresses than a worker of the builder may have.
    with target:
        return build(mod, target=without_loop_vectorizer(target))


def source_of(mod: IRModule, target: Target) -> str:
    """Build a scheduled module for its code: LLVM's, or for a GPU that of the kernels alone."""
    module = build_scheduled(mod, target)
    if target.kind.name == "llvm":
        return str(module.inspect_source("ll"))
    # A library that was exported and loaded no longer has it.
    return "\n".join(str(kernels.inspect_source(kernels.kind)) for kernels in module.imports)


def export_tar(module: Module) -> str:
    """Export a module as object files, to be linked by the machine that loads them.

    Returns the path, in the candidate's folder, which is the temporary directory of a build.
    """
    from tvm.support.tar import tar

    path = os.path.join(tempfile.gettempdir(), f"module.{tar.output_format}")
    module.export_library(path, fcompile=tar)
    return path


def export_shared_library(module: Module) -> str:
    """Export a module as a shared library for this machine, which loads without linking.

    Returns the path, as of ``export_tar``.
    """
    path = os.path.join(tempfile.gettempdir(), "module.so")
    # Without C++'s library and start-up files the linker takes a third of the time. Without the
    # mathematical one, functions are bound to its oldest versions: ``expf`` takes twice as long.
    module.export_library(path, options=["-nostdlib", "-Wl,--no-as-needed", "-lm"])
    return path


def prepare_to_build(target: Target | None = None) -> None:
    """Build a small module, so that forked workers find everything for building initialized.

    ``target``: that of their builds, if it is known: a GPU's tensor intrinsics take seconds to
    import, and each worker would import them before its first build.
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

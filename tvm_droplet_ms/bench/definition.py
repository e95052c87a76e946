# SPDX-License-Identifier: Apache-2.0
"""Definitions of spaces: a workload and its design space, whole or cut to an enumerable size."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.space_generator import PostOrderApply, SpaceGenerator
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target

from .layers import (
    LAYERS,
    Tensors,
    Workload,
    batch_product,
    convolution,
    convolution_nchw,
    dense_bias_relu,
    depthwise,
    layer_norm,
    made,
    product,
    softmax,
)
from .space import Space, SpaceError


@dataclass(frozen=True)
class Definition:
    """A workload and its design space.

    - ``description``: the workload and the schedule space, in one line.
    - ``mod``: the unscheduled module, with the function ``main``.
    - ``make_space``: makes a new generator of the design space.
    - ``is_whole``: True for MetaSchedule's own space, which is too large to enumerate.
    """

    name: str
    description: str
    mod: IRModule
    make_space: Callable[[], SpaceGenerator]
    is_whole: bool = False

    def context(self, target: Target, strategy: ms.SearchStrategy | str, seed: int = 1) -> object:
        """A context that tunes the workload on one thread."""
        return ms.TuneContext(
            self.mod,
            target=target,
            space_generator=self.make_space(),
            search_strategy=strategy,
            task_name=self.name,
            rand_state=seed,
            num_threads=1,
        )


@dataclass(frozen=True)
class Cut:
    """MetaSchedule's rules for a CPU with a multi-level tiling of fewer levels.

    The rules and their other settings come from ``ScheduleRule::DefaultLLVM``
    (``src/s_tir/meta_schedule/schedule_rule/schedule_rule.cc``).

    - ``structure``: the tiling; MetaSchedule's own is "SSRSRS".
    - ``unroll``: the unroll limits to choose from.
    - ``write_levels``: the levels at which a write cache may be; empty for no write cache.
    - ``rfactor``: True if a reduction may be split in two.
    - ``parallel``: True to annotate loops as parallel, which adds a parallel extent to choose.
    """

    structure: str
    unroll: tuple[int, ...] = (0, 16, 64, 512)
    write_levels: tuple[int, ...] = ()
    rfactor: bool = False
    parallel: bool = False

    def __str__(self) -> str:
        extras = [f"unrolled to {'/'.join(map(str, self.unroll))}"] if self.unroll else []
        extras += ["a write cache or none"] if self.write_levels else []
        extras += ["reductions split or not"] if self.rfactor else []
        extras += ["a parallel extent"] if self.parallel else []
        return "; ".join([f"MetaSchedule's rules tiled {self.structure}", *extras])

    def make(self) -> SpaceGenerator:
        """Make a generator of the design space."""
        rule = ms.schedule_rule
        cache = rule.ReuseType(req="may", levels=list(self.write_levels), scope="global")
        return PostOrderApply(
            sch_rules=[
                rule.InlineConstantScalars(),
                rule.AutoInline(
                    into_producer=False,
                    into_consumer=True,
                    inline_const_tensor=True,
                    disallow_if_then_else=True,
                    require_injective=True,
                    require_ordered=True,
                    disallow_op=["tirx.exp"],
                ),
                *([rule.AddRFactor(max_jobs_per_core=16, max_innermost_factor=64)] * self.rfactor),
                rule.MultiLevelTiling(
                    structure=self.structure,
                    max_innermost_factor=64,
                    reuse_write=cache if self.write_levels else None,
                ),
                rule.ParallelizeVectorizeUnroll(
                    max_jobs_per_core=16 if self.parallel else -1,
                    max_vectorize_extent=64,
                    unroll_max_steps=list(self.unroll),
                    unroll_explicit=True,
                ),
                rule.RandomComputeLocation(),
            ],
            postprocs="from-target",
            mutator_probs="from-target",
        )


def whole() -> SpaceGenerator:
    """Make a generator of MetaSchedule's whole design space."""
    return PostOrderApply()


def module(tensors: Sequence[te.Tensor]) -> IRModule:
    """Make a module whose function ``main`` computes the tensors."""
    function = te.create_prim_func(list(tensors)).with_attr("global_symbol", "main")
    return IRModule({"main": function})


def define(name: str, workload: str, tensors: Tensors, cut: Cut | None = None) -> Definition:
    """The definition of a workload with a part of MetaSchedule's space, or with the whole space."""
    if cut is None:
        description = f"{workload}; MetaSchedule's whole space for a CPU"
        return Definition(name, description, module(tensors()), whole, is_whole=True)
    return Definition(name, f"{workload}; {cut}", module(tensors()), cut.make)


class UnknownDefinitionError(Exception):
    """No definition has that name."""


class UntrustedDefinitionError(SpaceError):
    """A space file names a function that the user does not trust."""


_trusted: set[str] = set()


def trust(*names: str) -> None:
    """Let space files name these functions, each ``package.module:function``, in this process."""
    _trusted.update(names)


def trusted() -> tuple[str, ...]:
    """The functions that space files may name."""
    return tuple(sorted(_trusted))


def definition_of(space: Space) -> Definition:
    """Find the definition that a space file names.

    Raises ``UntrustedDefinitionError`` if the file names a function that was not passed to
    ``trust``, because the lookup imports and calls it. Raises ``UnknownDefinitionError`` if no
    definition has that name.
    """
    if ":" in space.definition and space.definition not in _trusted:
        raise UntrustedDefinitionError(
            f"space {space.name} is defined by {space.definition!r}, which is code to import and "
            "run, and no definition of this package; if you trust it, name it with --trust "
            f"{space.definition}"
        )
    return find_definition(space.definition)


def context_of(space: Space) -> TuneContext:
    """A context that replays the traces of a space."""
    return definition_of(space).context(Target(dict(space.target)), "replay-trace")


def find_definition(text: str) -> Definition:
    """Find a definition of the package or the user by its name.

    ``text``: a name in ``DEFINITIONS`` or ``LAYERS``, or ``package.module:function``, a function
    without parameters that returns a ``Definition``. Raises ``UnknownDefinitionError`` if the
    definition does not exist.
    """
    if ":" in text:
        module, _, attribute = text.partition(":")
        try:
            definition = getattr(importlib.import_module(module), attribute)()
        except (ImportError, AttributeError, TypeError) as error:
            raise UnknownDefinitionError(f"{text}: {error}") from error
        if not isinstance(definition, Definition):
            raise UnknownDefinitionError(f"{text}() returned {definition!r}, expected a Definition")
        return definition
    known = DEFINITIONS | SAMPLED
    if text not in known:
        raise UnknownDefinitionError(
            f"{text!r} is no workload, expected one of {', '.join(known)}, or "
            "package.module:function that returns a Definition"
        )
    return known[text]()


_CUT: dict[str, tuple[Workload, Cut]] = {
    "dense": (product(128, 128, 128), Cut("SRSRS", unroll=())),
    "batch_matmul": (batch_product(4, 64, 64, 64), Cut("SRSR", unroll=(0, 512))),
    "conv2d_3x3": (convolution(14, 32, 32), Cut("SRS", unroll=(0, 64))),
    "conv2d_1x1": (convolution(14, 128, 64, kernel=1), Cut("SRSR", unroll=(0, 512))),
    "conv2d_nchw": (convolution_nchw(14, 32, 32), Cut("SRS", unroll=(0, 64))),
    "depthwise": (depthwise(28, 32), Cut("SRSR", unroll=())),
    "layer_norm": (layer_norm(64, 256), Cut("SRS", unroll=(), rfactor=True)),
    "odd": (product(77, 105, 143), Cut("SRSRS", unroll=(0, 512))),
    "dense_bias_relu": (
        (
            "matrix product 64x128x256 with bias and ReLU fused",
            made(dense_bias_relu, data=(64, 256), weight=(256, 128), bias=(128,)),
        ),
        Cut("SRSR", unroll=(0, 512), write_levels=(1, 2)),
    ),
    "matmul_parallel": (product(64, 128, 128), Cut("SRS", write_levels=(1,), parallel=True)),
    "conv1d": (
        (
            "convolution of 3 NLC 56, 64 to 64 channels",
            lambda: te_workload.conv1d_nlc(1, 56, 64, 64, 3, 1, 1),
        ),
        Cut("SRS", unroll=(0, 64)),
    ),
    "conv2d_bn_relu": (
        (
            "3x3 convolution NCHW 14x14, 16 to 32 channels, with bias, batch norm and ReLU fused",
            lambda: te_workload.conv2d_nchw_bias_bn_relu(1, 14, 14, 16, 32, 3, 3, 1, 1),
        ),
        Cut("SRS", unroll=(0, 64)),
    ),
    "conv2d_dilated": (convolution(14, 32, 32, dilation=2), Cut("SRS", unroll=(0, 64))),
    "dense_flat": (product(16, 512, 256), Cut("SRSR", unroll=(0, 64, 512))),
    "depthwise_stride2": (depthwise(28, 32, stride=2), Cut("SRSR", unroll=())),
}

_WHOLE: dict[str, Workload] = {
    "whole_dense": product(128, 512, 512),
    "whole_conv2d_3x3": convolution(28, 64, 64),
    "whole_depthwise": depthwise(112, 32),
    "whole_softmax": softmax(64, 256),
}

DEFINITIONS: dict[str, Callable[[], Definition]] = {
    **{name: partial(define, name, *workload, cut) for name, (workload, cut) in _CUT.items()},
    **{name: partial(define, name, *workload) for name, workload in _WHOLE.items()},
}
"""Functions that make the definitions of spaces, by name."""

SAMPLED: dict[str, Callable[[], Definition]] = {
    name: partial(define, name, *workload) for name, workload in (_WHOLE | LAYERS).items()
}
"""Definitions with MetaSchedule's whole space, which can be sampled but not enumerated, by name."""

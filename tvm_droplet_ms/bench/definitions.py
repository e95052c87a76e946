# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""The workloads that spaces are made of, each with a design space cut to be enumerable or whole."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import te, tirx, topi
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.space_generator import PostOrderApply, SpaceGenerator
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target


@dataclass(frozen=True)
class Definition:
    """A workload and its design space.

    Parameters
    ----------
    name : str
        Its name.
    description : str
        The workload and the schedule space, in a line.
    mod : IRModule
        The unscheduled module, with the function ``main``.
    make_space : Callable[[], SpaceGenerator]
        Makes a new generator of its design space.
    is_whole : bool
        Whether that is MetaSchedule's own space, too large to enumerate.
    """

    name: str
    description: str
    mod: IRModule
    make_space: Callable[[], SpaceGenerator]
    is_whole: bool = False

    def context(self, target: Target, strategy: ms.SearchStrategy | str, seed: int = 1) -> object:
        """A context that tunes it on one thread."""
        return ms.TuneContext(
            self.mod,
            target=target,
            space_generator=self.make_space(),
            search_strategy=strategy,
            task_name=self.name,
            rand_state=seed,
            num_threads=1,
        )


class UnknownDefinitionError(Exception):
    """No definition has that name."""


def find_definition(text: str) -> Definition:
    """Find a definition by its name, or one of the user's.

    Parameters
    ----------
    text : str
        A name of ``DEFINITIONS``, or ``package.module:function``, a function without parameters
        that returns a ``Definition``.

    Raises
    ------
    UnknownDefinitionError
        If there is none.
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
    if text not in DEFINITIONS:
        raise UnknownDefinitionError(
            f"{text!r} is no workload, expected one of {', '.join(DEFINITIONS)}, or "
            "package.module:function that returns a Definition"
        )
    return DEFINITIONS[text]()


def cut(
    structure: str,
    *,
    unroll: Sequence[int] = (0, 16, 64, 512),
    write_levels: Sequence[int] = (),
    rfactor: bool = False,
    parallel: bool = False,
) -> Callable[[], SpaceGenerator]:
    """MetaSchedule's rules for a CPU with a multi-level tiling of fewer levels.

    The rules and their other settings are those of ``ScheduleRule::DefaultLLVM``
    (``src/s_tir/meta_schedule/schedule_rule/schedule_rule.cc``).

    Parameters
    ----------
    structure : str
        The tiling; MetaSchedule's own is "SSRSRS".
    unroll : Sequence[int]
        The limits of unrolling to choose from.
    write_levels : Sequence[int]
        At which levels a write cache may be; none for no write cache.
    rfactor : bool
        Whether a reduction may be split in two.
    parallel : bool
        Whether loops are annotated as parallel, which adds an extent to choose.
    """
    rule = ms.schedule_rule

    def make() -> SpaceGenerator:
        cache = rule.ReuseType(req="may", levels=list(write_levels), scope="global")
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
                *([rule.AddRFactor(max_jobs_per_core=16, max_innermost_factor=64)] * rfactor),
                rule.MultiLevelTiling(
                    structure=structure,
                    max_innermost_factor=64,
                    reuse_write=cache if write_levels else None,
                ),
                rule.ParallelizeVectorizeUnroll(
                    max_jobs_per_core=16 if parallel else -1,
                    max_vectorize_extent=64,
                    unroll_max_steps=list(unroll),
                    unroll_explicit=True,
                ),
                rule.RandomComputeLocation(),
            ],
            postprocs="from-target",
            mutator_probs="from-target",
        )

    return make


def _whole() -> SpaceGenerator:
    return PostOrderApply()


def _module(tensors: Sequence[te.Tensor]) -> IRModule:
    function = te.create_prim_func(list(tensors)).with_attr("global_symbol", "main")
    return IRModule({"main": function})


def _dense_bias_relu(rows: int, columns: int, inner: int) -> list[te.Tensor]:
    data = te.placeholder((rows, inner), name="data")
    weight = te.placeholder((inner, columns), name="weight")
    bias = te.placeholder((columns,), name="bias")
    k = te.reduce_axis((0, inner), name="k")
    dense = te.compute(
        (rows, columns), lambda i, j: te.sum(data[i, k] * weight[k, j], axis=k), name="dense"
    )
    biased = te.compute((rows, columns), lambda i, j: dense[i, j] + bias[j], name="biased")
    zero = tirx.const(0, "float32")
    relu = te.compute((rows, columns), lambda i, j: te.max(biased[i, j], zero), name="relu")
    return [data, weight, bias, relu]


def _layer_norm(rows: int, columns: int) -> list[te.Tensor]:
    data = te.placeholder((rows, columns), name="data")
    gamma = te.placeholder((columns,), name="gamma")
    beta = te.placeholder((columns,), name="beta")
    return [data, gamma, beta, topi.nn.layer_norm(data, gamma, beta, axis=[1])]


def _define(
    name: str,
    workload: str,
    tensors: Callable[[], Sequence[te.Tensor]],
    structure: str,
    *,
    unroll: Sequence[int] = (0, 16, 64, 512),
    write_levels: Sequence[int] = (),
    rfactor: bool = False,
    parallel: bool = False,
) -> tuple[str, Callable[[], Definition]]:
    extras = [f"unrolled to {'/'.join(map(str, unroll))}"] if unroll else []
    extras += ["a write cache or none"] if write_levels else []
    extras += ["reductions split or not"] if rfactor else []
    extras += ["a parallel extent"] if parallel else []
    description = "; ".join([workload, f"MetaSchedule's rules tiled {structure}", *extras])
    space = cut(
        structure, unroll=unroll, write_levels=write_levels, rfactor=rfactor, parallel=parallel
    )
    return name, lambda: Definition(name, description, _module(tensors()), space)


def _define_whole(
    name: str, workload: str, tensors: Callable[[], Sequence[te.Tensor]]
) -> tuple[str, Callable[[], Definition]]:
    description = f"{workload}; MetaSchedule's whole space for a CPU"
    return name, lambda: Definition(name, description, _module(tensors()), _whole, is_whole=True)


_t = te_workload

DEFINITIONS: dict[str, Callable[[], Definition]] = dict(
    [
        _define(
            "dense",
            "matrix product 128x128x128",
            lambda: _t.matmul(128, 128, 128),
            "SRSRS",
            unroll=(),
        ),
        _define(
            "batch_matmul",
            "4 matrix products 64x64x64",
            lambda: _t.batch_matmul_nkkm(4, 64, 64, 64),
            "SRSR",
            unroll=(0, 512),
        ),
        _define(
            "conv2d_3x3",
            "3x3 convolution NHWC 14x14, 32 to 32 channels",
            lambda: _t.conv2d_nhwc(1, 14, 14, 32, 32, 3, 1, 1),
            "SRS",
            unroll=(0, 64),
        ),
        _define(
            "conv2d_1x1",
            "1x1 convolution NHWC 14x14, 128 to 64 channels",
            lambda: _t.conv2d_nhwc(1, 14, 14, 128, 64, 1, 1, 0),
            "SRSR",
            unroll=(0, 512),
        ),
        _define(
            "conv2d_nchw",
            "3x3 convolution NCHW 14x14, 32 to 32 channels",
            lambda: _t.conv2d_nchw(1, 14, 14, 32, 32, 3, 3, 1, 1),
            "SRS",
            unroll=(0, 64),
        ),
        _define(
            "depthwise",
            "3x3 depthwise convolution NHWC 28x28, 32 channels",
            lambda: _t.depthwise_conv2d_nhwc(1, 28, 28, 32, 3, 1, 1),
            "SRSR",
            unroll=(),
        ),
        _define(
            "layer_norm",
            "layer norm over the last axis of 64x256",
            lambda: _layer_norm(64, 256),
            "SRS",
            unroll=(),
            rfactor=True,
        ),
        _define(
            "odd",
            "matrix product 77x105x143",
            lambda: _t.matmul(77, 105, 143),
            "SRSRS",
            unroll=(0, 512),
        ),
        _define(
            "dense_bias_relu",
            "matrix product 64x128x256 with bias and ReLU fused",
            lambda: _dense_bias_relu(64, 128, 256),
            "SRSR",
            unroll=(0, 512),
            write_levels=(1, 2),
        ),
        _define(
            "matmul_parallel",
            "matrix product 64x128x128",
            lambda: _t.matmul(64, 128, 128),
            "SRS",
            write_levels=(1,),
            parallel=True,
        ),
        _define(
            "conv1d",
            "convolution of 3 NLC 56, 64 to 64 channels",
            lambda: _t.conv1d_nlc(1, 56, 64, 64, 3, 1, 1),
            "SRS",
            unroll=(0, 64),
        ),
        _define(
            "conv2d_bn_relu",
            "3x3 convolution NCHW 14x14, 16 to 32 channels, with bias, batch norm and ReLU fused",
            lambda: _t.conv2d_nchw_bias_bn_relu(1, 14, 14, 16, 32, 3, 3, 1, 1),
            "SRS",
            unroll=(0, 64),
        ),
        _define(
            "conv2d_dilated",
            "3x3 convolution NHWC 14x14 of dilation 2, 32 to 32 channels",
            lambda: _t.conv2d_nhwc(1, 14, 14, 32, 32, 3, 1, 2, 2),
            "SRS",
            unroll=(0, 64),
        ),
        _define(
            "dense_flat",
            "matrix product 16x512x256",
            lambda: _t.matmul(16, 512, 256),
            "SRSR",
            unroll=(0, 64, 512),
        ),
        _define(
            "depthwise_stride2",
            "3x3 depthwise convolution NHWC 28x28 of stride 2, 32 channels",
            lambda: _t.depthwise_conv2d_nhwc(1, 28, 28, 32, 3, 2, 1),
            "SRSR",
            unroll=(),
        ),
        _define_whole(
            "whole_dense",
            "matrix product 128x512x512",
            lambda: _t.matmul(128, 512, 512),
        ),
        _define_whole(
            "whole_conv2d_3x3",
            "3x3 convolution NHWC 28x28, 64 to 64 channels",
            lambda: _t.conv2d_nhwc(1, 28, 28, 64, 64, 3, 1, 1),
        ),
        _define_whole(
            "whole_depthwise",
            "3x3 depthwise convolution NHWC 112x112, 32 channels",
            lambda: _t.depthwise_conv2d_nhwc(1, 112, 112, 32, 3, 1, 1),
        ),
        _define_whole(
            "whole_softmax",
            "softmax over the last axis of 64x256",
            lambda: _t.softmax_mn(64, 256),
        ),
    ]
)
"""The definitions by name; each is made when asked for."""

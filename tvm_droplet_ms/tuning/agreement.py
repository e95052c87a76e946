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
"""Executables whose outputs agree with the reference, without what changes them."""

import time
from collections.abc import Callable, Collection, Sequence

from tvm.ir import IRModule
from tvm.ir.transform import Pass
from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target

from .compiled_model import CompiledModel
from .diagnosis import NamedPass, first_wrong_pass
from .frontends.imported import Arrays
from .lowering import build, lower
from .model_kernels import ModelKernels
from .output_check import OutputCheck
from .parts import Parts
from .stop import StopRequest

Prepare = Callable[[Sequence[Pass]], tuple[IRModule, ModelKernels]]
"""Prepares the imported module with some passes: the graph, and its kernels with schedules."""


class Agreement:
    """Makes executables of a model that agree with its reference.

    Parameters
    ----------
    mod : IRModule
        The imported module.
    target : Target
        The target.
    passes : Sequence[tuple[str, Pass]]
        What prepares the graph, by name, in order.
    check : OutputCheck
        What the outputs are compared with.
    parts : Parts
        Where the time goes.
    note : Callable[[str], None]
        Is told what was left out.
    """

    def __init__(
        self,
        mod: IRModule,
        target: Target,
        passes: Sequence[NamedPass],
        check: OutputCheck,
        parts: Parts,
        note: Callable[[str], None],
    ) -> None:
        self._mod = mod
        self._target = target
        self._passes = passes
        self._check = check
        self._parts = parts
        self._note = note

    def first(
        self, prepare: Prepare, stop: StopRequest
    ) -> tuple[IRModule, ModelKernels, CompiledModel, float]:
        """Prepare and build until the outputs agree, without the passes that change them.

        Parameters
        ----------
        prepare : Callable[[Sequence[Pass]], tuple[IRModule, ModelKernels]]
            Prepares the graph with some passes, and gives its kernels schedules.
        stop : StopRequest
            When the run ends.

        Returns
        -------
        graph : IRModule
            The prepared graph.
        kernels : ModelKernels
            Its kernels.
        compiled : CompiledModel
            The executable.
        build_secs : float
            What compiling it took, in seconds.

        Raises
        ------
        RuntimeError
            If the outputs differ and no kernel and no pass is the reason.
        """
        skipped: list[str] = []
        while True:
            graph, kernels = prepare([step for name, step in self._passes if name not in skipped])
            start = time.monotonic()
            compiled = self._compile(kernels)
            build_secs = time.monotonic() - start
            agreeing = self._agreeing(kernels, compiled)
            if agreeing is not None:
                return graph, kernels, agreeing, build_secs
            with self._parts("check"):
                name = self._wrong_pass(skipped)
            if name is None:
                raise RuntimeError(
                    f"the outputs differ from {self._check.reference.name} by "
                    f"{self._check.deviation(compiled):.1e} of the largest, and neither a kernel "
                    "nor a graph pass is the reason: please report the model"
                )
            skipped.append(name)
            self._note(f"the graph pass {name} changed the outputs and was left out")

    def last(
        self, chosen: ModelKernels, direct: ModelKernels, first: CompiledModel, stop: StopRequest
    ) -> tuple[ModelKernels, CompiledModel]:
        """The model with what was measured, without what gives other outputs.

        Parameters
        ----------
        chosen : ModelKernels
            The kernels to compile, with Winograd convolutions where they are faster.
        direct : ModelKernels
            Those without any; may be `chosen`.
        first : CompiledModel
            The first executable, of `direct`.
        stop : StopRequest
            When the run ends.

        Returns
        -------
        kernels : ModelKernels
            Those of the executable.
        compiled : CompiledModel
            The executable; `first` where no other one agrees.
        """
        for kernels in dict.fromkeys((chosen, direct)):
            last = self._agreeing(kernels, self._compile(kernels))
            if last is not None:
                return kernels, last
            if kernels is not direct:
                self._note(
                    "the model with Winograd convolutions gave other outputs than the tolerance "
                    f"{self._check.tolerance:.1e} allows: they are computed directly"
                )
            else:
                self._note("the tuned model gave other outputs: the first executable is kept")
        return direct, first

    def agrees(self, compiled: CompiledModel) -> bool:
        """Whether the outputs are those of the reference."""
        with self._parts("check"):
            return self._check.deviation(compiled) <= self._check.tolerance

    def _compile(self, kernels: ModelKernels) -> CompiledModel:
        with self._parts("compile"):
            return kernels.compile()

    def _agreeing(self, kernels: ModelKernels, compiled: CompiledModel) -> CompiledModel | None:
        """The model with the kernels untouched whose schedules give other outputs.

        Returns None where that does not make the outputs agree.
        """
        if self.agrees(compiled):
            return compiled
        with self._parts("check"):
            wrong = kernels.wrong(self._check.tolerance)
        if not wrong:
            return None
        kernels.untouched.update(wrong)
        compiled = self._compile(kernels)
        if not self.agrees(compiled):
            return None
        self._note(f"schedules of {', '.join(wrong)} gave other outputs; these are left untouched")
        return compiled

    def _wrong_pass(self, skipped: Collection[str]) -> str | None:
        """The first pass after which the outputs differ."""

        def run(mod: IRModule) -> Arrays:
            lowered = lower(mod, self._target, is_reference=True)
            executable = build(lowered, MemoryDatabase(), self._target)
            return CompiledModel(executable)(self._check.inputs[0])

        passes = [(name, step) for name, step in self._passes if name not in skipped]
        return first_wrong_pass(
            self._mod, passes, run, self._check.expected[0], self._check.tolerance
        )

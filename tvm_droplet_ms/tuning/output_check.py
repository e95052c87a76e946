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
"""Whether a compiled model still computes what the imported one does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target

from .compiled_model import CompiledModel
from .deviation import largest_deviation
from .errors import ModelError
from .frontends.imported import Arrays, ImportedModel, InputSpec, Reference
from .given_inputs import given_values
from .lowering import build, lower

INPUT_SETS = 3
"""Random inputs that outputs are compared on."""

EXACT_TOLERANCE = 1e-4
"""The rounding of float32 sums that are added up in another order, relative to the largest output;
a hundred times what was seen on the models of the tests."""

WINOGRAD_TOLERANCE = 1e-3
"""The same where Winograd convolutions are allowed: one with 4x4 tiles has an error of 1e-5."""


@dataclass(frozen=True)
class OutputCheck:
    """Outputs to compare with.

    Parameters
    ----------
    reference : Reference
        What made them.
    inputs : tuple[tuple[np.ndarray, ...], ...]
        Sets of inputs.
    expected : tuple[list[np.ndarray], ...]
        The outputs of each set.
    tolerance : float
        The largest deviation that passes.
    """

    reference: Reference
    inputs: tuple[tuple[np.ndarray, ...], ...]
    expected: tuple[Arrays, ...]
    tolerance: float

    def deviation(self, run: Callable[[Sequence[np.ndarray]], Arrays]) -> float:
        """The largest deviation over all sets of inputs; see ``largest_deviation``."""
        pairs = zip(self.inputs, self.expected, strict=True)
        return max(largest_deviation(run(inputs), expected) for inputs, expected in pairs)


def make_check(
    imported: ImportedModel,
    target: Target,
    tolerance: float,
    seed: int,
    given: Mapping[str, np.ndarray] | None = None,
) -> OutputCheck:
    """Run the reference on random inputs.

    Parameters
    ----------
    imported : ImportedModel
        The model. Where it has no reference, the module itself is compiled as it was imported, and
        run on one set of inputs only: it is slow without schedules.
    target : Target
        The target to compile that for.
    tolerance : float
        The largest deviation that passes.
    seed : int
        Seed of the inputs.
    given : Mapping[str, np.ndarray] | None
        Values of inputs by name, which are the same in every set. The others are random.

    Returns
    -------
    check : OutputCheck
        The check.

    Raises
    ------
    ModelError
        If a given value is of no input, of another shape, or of another kind of type.
    """
    values = _checked(given or {}, imported.inputs)
    generator = np.random.default_rng(seed)
    count = INPUT_SETS if imported.reference else 1
    inputs = tuple(
        tuple(values.get(spec.name, spec.random(generator)) for spec in imported.inputs)
        for _ in range(count)
    )
    reference = imported.reference or untouched(imported, target)
    return OutputCheck(
        reference, inputs, tuple(reference.run(arrays) for arrays in inputs), tolerance
    )


def _checked(given: Mapping[str, np.ndarray], inputs: Sequence[InputSpec]) -> dict[str, np.ndarray]:
    try:
        return given_values(
            given, {spec.name: (tuple(spec.shape), np.dtype(spec.dtype)) for spec in inputs}
        )
    except ValueError as error:
        raise ModelError(str(error)) from error


def untouched(imported: ImportedModel, target: Target) -> Reference:
    """The imported module, compiled without any pass of ours and without schedules."""
    mod = imported.original or imported.mod
    executable = build(lower(mod, target, is_reference=True), MemoryDatabase(), target)
    return Reference("the untouched model", CompiledModel(executable))

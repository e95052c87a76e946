# SPDX-License-Identifier: Apache-2.0
"""One case of ``onnx.backend.test``: in ONNX Runtime, and through the package."""

import contextlib
import io
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

import tvm
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.frontends.imported import ImportedModel
from tvm_droplet_ms.frontends.onnx.importing import import_onnx
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.session.target import cpu_target
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_ms.tuning.compile.lowering import build, lower

from ..apart import Fault, run_each
from .cases import FLOAT, Case, load_cases, shapes_of, with_parameters

PASSED, REFUSED, WRONG, FAILED, CRASHED = "passed", "refused", "wrong", "failed", "crashed"

SECS = 60.0
"""The most that a case may take."""


class Outcome(NamedTuple):
    """The outcome of a case.

    - ``status``: PASSED; REFUSED (one sentence); WRONG (other outputs); FAILED (another exception,
      which a user would see as a traceback); CRASHED (the process is gone, or a minute was too
      short).
    - ``detail``: the sentence, the error, or by how much the outputs differ.
    - ``constants``: whether what shapes the operator was held constant.
    - ``runtime``: whether ONNX Runtime passes the case.
    - ``secs``: wall time of the import, the compiler and the run.
    """

    name: str
    operator: str
    group: str
    status: str
    detail: str
    constants: bool
    runtime: bool
    secs: float

    @property
    def counts(self) -> bool:
        """True if the bar is about this case."""
        return self.group == FLOAT and self.runtime


def run_cases(names: Sequence[str], workers: int = 2) -> Iterator[Outcome]:
    """Run cases in processes of their own, and yield the outcomes as they come."""
    preload = [__name__, f"{__package__}.preload"]
    for name, found in run_each(run_case, names, SECS, workers=workers, preload=preload):
        if isinstance(found, Fault):
            case = load_cases()[name]
            # It counts, as if ONNX Runtime passed it.
            yield Outcome(name, case.operator, case.group, CRASHED, found.why, False, True, SECS)
        else:
            yield found


def run_case(name: str) -> Outcome:
    """Run a case as it is and, where it is refused, once more with its parameters constant."""
    case = load_cases()[name]
    runtime = _passes_in_onnx_runtime(case)
    start = time.perf_counter()
    status, detail = _try(case)
    constants = False
    if status in (REFUSED, FAILED) and (static := with_parameters(case)) is not None:
        status, detail = _try(static)
        constants = True
    secs = time.perf_counter() - start
    return Outcome(name, case.operator, case.group, status, detail, constants, runtime, secs)


def _passes_in_onnx_runtime(case: Case) -> bool:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [value.name for value in session.get_inputs()]
        for inputs, outputs in case.data_sets:
            found = session.run(None, dict(zip(names, inputs)))
            if difference(case, found, outputs):
                return False
    # ONNX Runtime has several exceptions of its own.
    except Exception:
        return False
    return True


def _try(case: Case) -> tuple[str, str]:
    quiet = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(quiet):
            warnings.simplefilter("ignore")
            detail = _run(case)
    except ModelError as error:
        return REFUSED, str(error)
    except Exception as error:
        return FAILED, _last_line(error)
    return (WRONG, detail) if detail else (PASSED, "")


def _run(case: Case) -> str:
    """Run all data sets through the package. Say how the outputs differ, if they do."""
    imported = import_onnx(case.model, shapes_of(case))
    # LLVM's passes take most of the time, and change no result.
    target = tvm.target.Target({**dict(cpu_target("auto", 1).export()), "opt-level": 0})
    with target:
        prepared = prepare_graph()(imported.mod)
    model = _compile(prepared, target)
    for inputs, outputs in case.data_sets:
        arrays = _in_order(case, imported, inputs)
        if said := difference(case, model(arrays), outputs):
            plain = _compile(imported.mod, target, is_reference=True)
            at = "import" if difference(case, plain(arrays), outputs) else "passes"
            return f"{at}: {said}"
    return ""


def _compile(mod: tvm.IRModule, target: tvm.target.Target, **options: bool) -> CompiledModel:
    lowered = lower(mod, target, **options)
    return CompiledModel(build(lowered, ms.database.MemoryDatabase(), target))


def _in_order(case: Case, imported: ImportedModel, inputs: list[Any]) -> list[Any]:
    """The inputs that the imported model has kept, as arrays."""
    weights = {tensor.name for tensor in case.model.graph.initializer}
    names = [value.name for value in case.model.graph.input if value.name not in weights]
    arrays = [np.asarray(value) for value in inputs]
    if len(imported.inputs) == len(arrays):
        return arrays
    by_name = dict(zip(names, arrays))
    return [by_name[spec.name] for spec in imported.inputs]


def difference(case: Case, found: list[Any], expected: list[Any]) -> str:
    """Say how outputs differ from the expected ones: as ONNX's runner judges, type and shape too.

    Silent if they are the same.
    """
    found, expected = _flat(found), _flat(expected)
    if len(found) != len(expected):
        return f"{len(found)} outputs, expected {len(expected)}"
    for index, (one, other) in enumerate(zip(found, expected)):
        one, other = np.asarray(one), np.asarray(other)
        if one.dtype != other.dtype:
            return f"output {index} is {one.dtype}, expected {other.dtype}"
        if one.shape != other.shape:
            return f"output {index} has the shape {one.shape}, expected {other.shape}"
        if other.dtype.name == "bfloat16":
            one, other = one.astype(np.float32), other.astype(np.float32)
        if other.dtype.kind not in "fiub":
            if not np.array_equal(one, other):
                return f"output {index} differs"
        elif not np.allclose(one, other, case.rtol, case.atol, equal_nan=True):
            same = np.isclose(one, other, case.rtol, case.atol, equal_nan=True)
            return f"output {index} differs in {int((~same).sum())} of {one.size} elements"
    return ""


def _flat(values: list[Any]) -> list[Any]:
    """The tensors of outputs: a compiled model returns those of a sequence one by one."""
    return [each for value in values for each in (value if isinstance(value, list) else [value])]


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    where = traceback.extract_tb(error.__traceback__)
    place = f"{where[-1].filename.rpartition('/')[2]}:{where[-1].lineno}" if where else "?"
    return f"{type(error).__name__} at {place}: {(lines or ['no message'])[-1][:200]}"

# SPDX-License-Identifier: Apache-2.0
"""One entry of the catalogue, tuned beside ONNX Runtime: a row of the table."""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..beside import RIGHT, row_deviation, timed_in_turns
from .catalogue import ENTRIES, Entry
from .fetch import fetch

OF_PROBABILITIES = 3e-7
"""The difference that outputs between 0 and 1 may have in any case: ONNX Runtime's sigmoid is off
by 1.3e-7, seen on outputs of 1e-6."""

NAIVE_SHARE, NAIVE_TIME = 0.05, 0.05
"""A kernel below this share of its roofline, with more than this share of the time, is naive."""


def run_named(job: tuple[str, float, int | None]) -> dict[str, Any]:
    """The row of an entry: its name, the seconds of its budget, and the most trials."""
    name, secs, trials = job
    start = time.monotonic()
    try:
        return run(next(each for each in ENTRIES if each.name == name), secs, trials)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:300]
        return {"name": name, "state": "failed", "why": why, "secs": _since(start)}


def run(entry: Entry, budget_s: float, trials: int | None) -> dict[str, Any]:
    """Tune an entry, compare it with ONNX Runtime, and time both in turns.

    "state" is "right", "ill-conditioned" (a rounding error moves ONNX Runtime's own outputs
    further, as ``tune`` has noted), "wrong", "refused" (a ``ModelError``), or "failed" (anything
    else).
    """
    from tvm_droplet_ms import tune
    from tvm_droplet_ms.session.errors import ModelError

    path = fetch(entry)
    options = {"constants": dict(entry.constants)} if entry.constants else {}
    inputs, reference = _reference(path, entry)
    start = time.monotonic()
    try:
        result = tune(
            str(path),
            shapes={n: shape for n, shape in entry.shapes.items() if n not in entry.constants},
            inputs={name: inputs[name] for name in entry.values} or None,
            time_budget_s=budget_s,
            trials=trials,
            threads=1,
            progress=None,
            **options,
        )
    except ModelError as error:
        return {"name": entry.name, "state": "refused", "why": str(error), "secs": _since(start)}
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:300]
        return {"name": entry.name, "state": "failed", "why": why, "secs": _since(start)}
    secs = _since(start)
    ours = [inputs[each] for each in inputs if each not in entry.constants]
    deviation = row_deviation(result.compiled(ours), reference(), OF_PROBABILITIES)
    total = sum(kernel.secs for kernel in result.kernels) or 1.0
    return {
        "name": entry.name,
        "state": _state(deviation, result.notes),
        "deviation": deviation,
        "secs": secs,
        "trials": result.trials,
        **timed_in_turns(lambda: result.compiled(ours), reference, "onnxruntime"),
        "kernels": sum(kernel.weight for kernel in result.kernels),
        "naive": [
            [kernel.name, round(kernel.secs / total, 3), round(kernel.roofline_share, 4)]
            for kernel in result.kernels
            if kernel.secs > NAIVE_TIME * total and kernel.roofline_share < NAIVE_SHARE
        ],
        "secs_of": {part: round(value, 2) for part, value in result.secs_of.items()},
        "notes": list(result.notes),
    }


def _state(deviation: float, notes: Sequence[str]) -> str:
    if deviation <= RIGHT:
        return "right"
    return "ill-conditioned" if any("ill-conditioned" in note for note in notes) else "wrong"


def _reference(path: Path, entry: Entry) -> tuple[dict[str, np.ndarray], Any]:
    """Inputs by name, and what runs ONNX Runtime on one thread on the file as it is."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.x64quantprecision", "1")  # Exact without VNNI.
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = {value.name: _input(value, entry) for value in session.get_inputs()}
    return inputs, lambda: [_numbers(each) for each in session.run(None, inputs)]


def _numbers(output: Any) -> np.ndarray:
    """Return an output as an array; of ``ZipMap``, one row of numbers for each mapping."""
    if isinstance(output, list):
        return np.array([list(mapping.values()) for mapping in output], "float32")
    return np.asarray(output)


def _input(value: Any, entry: Entry) -> np.ndarray:
    generator = np.random.default_rng(1)
    kind = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16"}
    dtype = kind.get(value.type) or re.sub(r"tensor\((.*)\)", r"\1", value.type)
    shape = entry.shapes.get(value.name, tuple(value.shape))
    if dtype == "string":
        return np.full(shape, "a", object)
    fixed: Mapping[str, float] = {**entry.values, **entry.constants}
    if value.name in fixed:
        return np.full(shape, fixed[value.name], dtype)
    if value.name in entry.below:
        return generator.integers(0, entry.below[value.name], shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def _since(start: float) -> float:
    return round(time.monotonic() - start, 1)

# SPDX-License-Identifier: Apache-2.0
"""Tune one entry of the catalogue beside ONNX Runtime; prints a row of JSON.

Run in a process of its own: ``python -m tests.corpus.onnx_files.trial NAME SECONDS [TRIALS]``.
"""

import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime

from .catalogue import ENTRIES, Entry
from .fetch import fetch

ROUNDS = 15
"""Alternating runs of both executables."""

RIGHT = 1e-3
"""The largest difference from ONNX Runtime, relative to the row's largest element."""

OF_PROBABILITIES = 3e-7
"""The difference that outputs between 0 and 1 may have in any case: ONNX Runtime's sigmoid is off
by 1.3e-7, seen on outputs of 1e-6."""

NAIVE_SHARE, NAIVE_TIME = 0.05, 0.05
"""A kernel below this share of its roofline, with more than this share of the time, is naive."""


def main() -> None:
    """Print the row of the entry that the command line names."""
    name, secs = sys.argv[1], float(sys.argv[2])
    trials = int(sys.argv[3]) if len(sys.argv) > 3 else None
    entry = next(each for each in ENTRIES if each.name == name)
    print(json.dumps(run(entry, secs, trials)), flush=True)


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
    start = time.monotonic()
    try:
        result = tune(
            str(path),
            shapes={n: shape for n, shape in entry.shapes.items() if n not in entry.constants},
            inputs=_given(entry),
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
    inputs, reference = _reference(path, entry)
    ours = [inputs[each] for each in inputs if each not in entry.constants]
    outputs = result.compiled(ours)
    pairs = zip(outputs, reference(), strict=True)
    deviation = max((_deviation(found, expected) for found, expected in pairs), default=0.0)
    rounds = [(_secs(lambda: result.compiled(ours)), _secs(reference)) for _ in range(ROUNDS)]
    total = sum(kernel.secs for kernel in result.kernels) or 1.0
    return {
        "name": entry.name,
        "state": _state(deviation, result.notes),
        "deviation": deviation,
        "secs": secs,
        "trials": result.trials,
        "ms": 1e3 * median(first for first, _ in rounds),
        "onnxruntime_ms": 1e3 * median(second for _, second in rounds),
        "speed": median(second / first for first, second in rounds),
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


def _given(entry: Entry) -> dict[str, np.ndarray] | None:
    """The inputs that cannot be random."""
    arrays = {}
    for name, value in entry.values.items():
        shape = entry.shapes.get(name, ())
        kind = np.int64 if name.endswith(("lens", "lengths")) else np.float32
        arrays[name] = np.full(shape, value, kind)
    return arrays or None


def _reference(path: Path, entry: Entry) -> tuple[dict[str, np.ndarray], Any]:
    """Inputs by name, and what runs ONNX Runtime on one thread on the file as it is."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = {value.name: _input(value, entry) for value in session.get_inputs()}
    return inputs, lambda: session.run(None, inputs)


def _input(value: Any, entry: Entry) -> np.ndarray:
    generator = np.random.default_rng(1)
    kind = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16"}
    dtype = kind.get(value.type) or re.sub(r"tensor\((.*)\)", r"\1", value.type)
    shape = entry.shapes.get(value.name, tuple(value.shape))
    fixed: Mapping[str, float] = {**entry.values, **entry.constants}
    if value.name in fixed:
        return np.full(shape, fixed[value.name], dtype)
    if value.name in entry.below:
        return generator.integers(0, entry.below[value.name], shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def _deviation(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference relative to the row's largest element, the last axis being a row."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf")
    if not np.issubdtype(expected.dtype, np.floating):
        return float(np.mean(found != expected)) if expected.size else 0.0
    if not expected.size:
        return 0.0
    known = np.isfinite(expected)
    if not np.array_equal(known, np.isfinite(found)):
        return float("inf")
    expected, found = np.where(known, expected, 0.0), np.where(known, found, 0.0)
    rows = np.abs(np.atleast_1d(expected)).max(-1, keepdims=True)
    scale = np.maximum(rows, 1e-3 * np.abs(expected).max())
    gap = np.abs(np.atleast_1d(found) - np.atleast_1d(expected))
    if expected.min() >= 0 and expected.max() <= 1:
        gap = np.maximum(gap - OF_PROBABILITIES, 0)
    return float(np.max(np.divide(gap, scale, out=gap.copy(), where=scale > 0)))


def _secs(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _since(start: float) -> float:
    return round(time.monotonic() - start, 1)


if __name__ == "__main__":
    main()

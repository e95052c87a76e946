# SPDX-License-Identifier: Apache-2.0
"""One architecture as its user tunes it, timed in turns with PyTorch: a row of the table."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

ROUNDS = 15
"""Alternating runs of both."""


def measure_tuned(name: str, budget_s: float) -> dict[str, Any]:
    """Tune an architecture without a trial, compare it with PyTorch, and time both in turns.

    One thread each. Returns its row: milliseconds of both, and the median of PyTorch's time over
    ours in each round.
    """
    import torch

    from tvm_droplet_ms import tune
    from tvm_droplet_ms.session.errors import ModelError

    from .one import row_deviation
    from .registry import build, leaves, outputs_of

    torch.set_num_threads(1)
    module, inputs = build(name)
    expected = outputs_of(module, inputs)
    row: dict[str, Any] = {"name": name, "accepted": False, "right": None}
    start = time.monotonic()
    try:
        result = tune((module, inputs), time_budget_s=budget_s, trials=0, threads=1, progress=None)
    except ModelError as error:
        return {**row, "refusal": str(error), "secs": {"tune": round(time.monotonic() - start, 1)}}
    secs = {"tune": round(time.monotonic() - start, 1)}
    arrays, arguments, keywords = leaves(inputs), (), {}
    if isinstance(inputs, dict):
        keywords = inputs
    else:
        arguments = inputs if isinstance(inputs, tuple) else (inputs,)

    def pytorch() -> None:
        with torch.inference_mode():
            module(*arguments, **keywords)

    deviation = row_deviation(result.compiled(arrays), expected)
    rounds = [(_secs(lambda: result.compiled(arrays)), _secs(pytorch)) for _ in range(ROUNDS)]
    return {
        **row,
        "accepted": True,
        "right": deviation <= 1e-3,
        "deviation": deviation,
        "kernels": len(result.kernels),
        "ms": 1e3 * median(first for first, _ in rounds),
        "pytorch_ms": 1e3 * median(second for _, second in rounds),
        "speed": median(second / first for first, second in rounds),
        "secs": secs,
        "notes": list(result.notes),
    }


def _secs(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start

# SPDX-License-Identifier: Apache-2.0
"""One architecture as its user tunes it, timed in turns with PyTorch: a row of the table."""

import time
from typing import Any

from ..beside import RIGHT, row_deviation, timed_in_turns


def measure_tuned(name: str, budget_s: float) -> dict[str, Any]:
    """Tune an architecture without a trial, compare it with PyTorch, and time both in turns.

    One thread each. Returns its row.
    """
    import torch

    from tvm_droplet_ms import tune
    from tvm_droplet_ms.session.errors import ModelError

    from .registry import arguments_of, build, leaves, outputs_of

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
    arrays, (arguments, keywords) = leaves(inputs), arguments_of(inputs)

    def pytorch() -> None:
        with torch.inference_mode():
            module(*arguments, **keywords)

    deviation = row_deviation(result.compiled(arrays), expected)
    return {
        **row,
        "accepted": True,
        "right": deviation <= RIGHT,
        "deviation": deviation,
        "kernels": len(result.kernels),
        **timed_in_turns(lambda: result.compiled(arrays), pytorch, "pytorch"),
        "secs": secs,
        "notes": list(result.notes),
    }

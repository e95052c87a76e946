# SPDX-License-Identifier: Apache-2.0
"""The same seed, one thread, a runner and a cost model without chance: the same trials."""

import json
import os
import subprocess
import sys
from pathlib import Path

from .driving import drive
from .objectives import rugged, timed
from .reproducing import reproduce
from .workloads import make_context


def test_same_seed(case):
    first, second = (drive(make_context(case.make(), seed=5), timed(rugged)) for _ in range(2))
    assert first.batches
    assert [trial.module for trial in first.trials] == second.modules
    assert [len(batch) for batch in first.batches] == [len(batch) for batch in second.batches]


def test_another_seed(case):
    first, second = (drive(make_context(case.make(), seed=seed), timed(rugged)) for seed in (5, 6))
    assert first.modules != second.modules


def test_another_process():
    """With another order of the sets of strings."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment["PYTHONHASHSEED"] = "1"
    child = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("child.py")), "reproduce"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    there = json.loads(child.stdout.splitlines()[-1])
    for name, batches in reproduce().items():
        assert there[name] == batches, name

# SPDX-License-Identifier: Apache-2.0
"""Systems other than Linux: the package imports; functions that need Linux raise."""

import os
import subprocess
import sys

import pytest

from tvm_droplet_ms.measure import (
    PromptRunner,
    WarmBuilder,
    WorkerPool,
    available_cpus,
    fast_measure,
)


@pytest.mark.parametrize(
    "name, make",
    [
        ("WarmBuilder", WarmBuilder),
        ("PromptRunner", PromptRunner),
        ("fast_measure", lambda: fast_measure("llvm")),
        ("WorkerPool", lambda: WorkerPool(1)),
    ],
)
@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_raise_with_message(monkeypatch, name, make, platform):
    monkeypatch.setattr(sys, "platform", platform)

    with pytest.raises(RuntimeError) as raised:
        make()

    for words in (f"{name} needs Linux", f"'{platform}'", "LocalBuilder", "LocalRunner"):
        assert words in str(raised.value)


def test_cpus_are_counted_where_the_system_does_not_list_them(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")

    assert available_cpus() == frozenset(range(os.cpu_count()))


ELSEWHERE = """
import os, sys
import psutil, tvm  # They know other systems themselves.
sys.modules["resource"] = None  # As on Windows: importing it raises.
for name in ("fork", "killpg", "setpgid", "sched_getaffinity", "sched_setaffinity", "memfd_create"):
    delattr(os, name)
import tvm_droplet_ms
from tvm_droplet_ms import measure
for name in measure.__all__:
    getattr(measure, name)
sys.platform = "darwin"
try:
    measure.WarmBuilder()
except RuntimeError as error:
    print(error)
"""


def test_package_imports_on_other_systems():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], env=environment, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert "WarmBuilder needs Linux" in done.stdout

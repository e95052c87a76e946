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

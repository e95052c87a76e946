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
"""The file of timings: what is drawn, who may use it, and what a killed process leaves."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tvm_droplet_ms.bench.live.timed_passes import StoredFailure, TimedPass
from tvm_droplet_ms.bench.live.timing_cache import Measurement, TimingCache
from tvm_droplet_ms.bench.live.timing_file import CacheError, Machine

MACHINE = Machine('{"kind":"llvm"}', "znver4", 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "timings.sqlite"


def measured(module: str, *run_secs: float, process: str = "1") -> Measurement:
    return Measurement(module, [["trace", module]], TimedPass(run_secs, process, 5.0))


def failed(module: str, kind: str) -> Measurement:
    return Measurement(module, [], StoredFailure(kind, f"it was {kind}"))


def test_what_was_added_is_found_by_another_process_later(path: Path):
    with TimingCache(path, MACHINE) as cache:
        cache.add("w", "dense", [measured("a", 1.0, 3.0), failed("b", "crash")], seed=0)
        cache.add("w", "dense", [measured("a", 4.0, process="2")])
        cache.add("other", "softmax", [measured("c", 1.0)])
    with TimingCache(path) as cache:
        assert cache.passes("w") == {
            "a": [TimedPass((1.0, 3.0), "1", 5.0), TimedPass((4.0,), "2", 5.0)]
        }
        assert cache.traces(["a", "unknown"]) == {"a": [["trace", "a"]]}
        assert cache.draw(7, ["b", "unknown"]) == {"b": StoredFailure("crash", "it was crash")}


def test_run_sees_again_what_it_measured_itself(path: Path):
    with TimingCache(path, MACHINE) as cache:
        for seed in range(20):
            cache.add("w", "dense", [measured("a", 1.0 + seed)], seed)
        drawn = [cache.draw(seed, ["a"])["a"] for seed in range(20)]
    assert [found.run_secs for found in drawn] == [(1.0 + seed,) for seed in range(20)]


def test_later_passes_do_not_change_what_a_seed_sees(path: Path):
    with TimingCache(path, MACHINE) as cache:
        cache.add("w", "dense", [measured("a", 1.0)])
        before = cache.draw(1, ["a"])
        cache.add("w", "dense", [measured("a", 2.0 + number) for number in range(50)])
        assert cache.draw(1, ["a"]) == before == {"a": measured("a", 1.0).outcome}


def test_seeds_spread_over_the_passes_alike(path: Path):
    with TimingCache(path, MACHINE) as cache:
        cache.add("w", "dense", [measured("a", 1.0 + number) for number in range(4)])
        drawn = [cache.draw(seed, ["a"])["a"] for seed in range(400)]
    counts = Counter(found.run_secs for found in drawn)
    # 100 expected of each, with a standard deviation of 9.
    assert len(counts) == 4 and all(60 < count < 140 for count in counts.values())


def test_faulty_module_has_no_passes_that_count_but_is_replayed(path: Path):
    with TimingCache(path, MACHINE) as cache:
        cache.add("w", "dense", [measured("a", 1.0), measured("b", 2.0)], seed=0)
        cache.set_fault("a", "computes something else")
        assert list(cache.passes("w")) == ["b"]
        assert cache.faults("w") == {"a": "computes something else"}
        assert cache.draw(0, ["a"]) == {"a": measured("a", 1.0).outcome}


def test_module_that_was_measured_once_is_no_failure(path: Path):
    with TimingCache(path, MACHINE) as cache:
        cache.add("w", "dense", [measured("a", 1.0), failed("a", "timeout")])
        assert cache.draw(0, ["a"]) == {"a": measured("a", 1.0).outcome}


@pytest.mark.parametrize("name, value", [("target", "{}"), ("cpu", "rocketlake"), ("threads", 2)])
def test_cache_of_another_machine_is_refused_in_one_sentence(path: Path, name: str, value: object):
    TimingCache(path, MACHINE).close()
    with pytest.raises(CacheError) as error:
        TimingCache(path, replace(MACHINE, **{name: value}))
    message = str(error.value)
    assert str(path) in message and name in message and str(value) in message
    assert "name another file" in message and "\n" not in message and ". " not in message
    TimingCache(path).close()


def test_cache_of_another_version_is_refused(path: Path):
    TimingCache(path, MACHINE).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE about SET value = '0' WHERE name = 'schema'")
    with pytest.raises(CacheError, match="version 0 of the tables, expected 1"):
        TimingCache(path, MACHINE)


def test_file_that_is_no_cache_is_refused_and_left_alone(path: Path):
    with pytest.raises(CacheError, match="does not exist"):
        TimingCache(path)
    assert not path.exists()
    path.write_text("notes, much longer than the header of a database" * 99)
    with pytest.raises(CacheError, match="not a database"):
        TimingCache(path, MACHINE)
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (value)")
    content = path.read_bytes()
    with pytest.raises(CacheError, match="is no cache of timings"):
        TimingCache(path, MACHINE)
    assert path.read_bytes() == content


def test_batch_is_added_whole_or_not_at_all(path: Path):
    with TimingCache(path, MACHINE) as cache:
        broken = Measurement("b", {"not": object()}, TimedPass((1.0,), "1", 5.0))
        with pytest.raises(TypeError):
            cache.add("w", "dense", [measured("a", 1.0), broken], seed=0)
        assert cache.passes("w") == {}
        cache.add("w", "dense", [measured("a", 1.0)], seed=0)
        assert list(cache.passes("w")) == ["a"]


KILLED_WITHIN_A_BATCH = """
import os, signal, sys
from tvm_droplet_ms.bench.live.timed_passes import TimedPass
from tvm_droplet_ms.bench.live.timing_cache import Measurement, TimingCache
from tvm_droplet_ms.bench.live.timing_file import Machine

def batch():
    yield Measurement("second", [], TimedPass((2.0,), "1", 5.0))
    os.kill(os.getpid(), signal.SIGKILL)

cache = TimingCache(sys.argv[1], Machine('{"kind":"llvm"}', "znver4", 1))
cache.add("w", "dense", [Measurement("first", [], TimedPass((1.0,), "1", 5.0))], seed=0)
cache.add("w", "dense", batch(), seed=0)
"""


def test_killed_process_loses_only_its_last_batch(path: Path):
    done = subprocess.run([sys.executable, "-c", KILLED_WITHIN_A_BATCH, str(path)], timeout=120)
    assert done.returncode == -signal.SIGKILL
    with TimingCache(path, MACHINE) as cache:
        assert list(cache.passes("w")) == ["first"]
        cache.add("w", "dense", [measured("third", 3.0)], seed=0)
        assert list(cache.passes("w")) == ["first", "third"]


def test_torn_log_loses_only_the_torn_batches(path: Path, tmp_path: Path):
    log = Path(f"{path}-wal")
    torn = tmp_path / "torn" / path.name
    torn.parent.mkdir()
    with TimingCache(path, MACHINE) as cache:
        cache.add("w", "dense", [measured("first", 1.0)], seed=0)
        whole = log.stat().st_size
        cache.add("w", "dense", [measured(f"later {n}", 2.0) for n in range(200)], seed=0)
        assert log.stat().st_size > whole
        for size in (whole, whole + 100, log.stat().st_size - 1):
            shutil.copy(path, torn)
            Path(f"{torn}-wal").write_bytes(log.read_bytes()[:size])
            Path(f"{torn}-shm").unlink(missing_ok=True)
            with TimingCache(torn, MACHINE) as copy:
                assert list(copy.passes("w")) == ["first"]
        assert len(cache.passes("w")) == 201


def test_two_processes_share_a_cache(path: Path):
    with TimingCache(path, MACHINE) as ours, TimingCache(path, MACHINE) as theirs:
        ours.add("w", "dense", [measured("a", 1.0)], seed=0)
        theirs.add("w", "dense", [measured("a", 2.0)], seed=0)
        assert ours.draw(0, ["a"]) == theirs.draw(0, ["a"]) == {"a": measured("a", 1.0).outcome}
        assert len(ours.passes("w")["a"]) == 2


def test_module_imports_no_tvm():
    code = "import sys; import tvm_droplet_ms.bench.live.cached; sys.exit('tvm' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0

# SPDX-License-Identifier: Apache-2.0
"""``tune_kernel`` with servers of TVM's RPC, on this machine."""

import json
import math
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tvm import te
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.cli import main
from tvm_droplet_ms.session.records import RECORDS
from tvm_droplet_ms.tuning.kernel import KernelError, choice, fleet, tune_kernel
from tvm_droplet_ms.tuning.kernel.check import verification
from tvm_droplet_ms.tuning.kernel.check.arguments import arguments_of, random_arrays
from tvm_droplet_ms.tuning.kernel.machine import MACHINE

sys.path.append(str(Path(__file__).parents[1] / "measure"))
from fleets import kill, local_fleet

MATMUL = IRModule({"main": te.create_prim_func(te_workload.matmul(16, 16, 16))})


@pytest.fixture(scope="module")
def local():
    with local_fleet() as local:
        yield local


def times(work_dir):
    lines = (work_dir / RECORDS).read_bytes().splitlines()
    return [json.loads(line)[1][1] for line in lines]


def test_a_run_that_loses_its_server_goes_on_with_another(local, tmp_path, monkeypatch):
    monkeypatch.setattr(fleet, "WAIT_SECS", 1.0)
    monkeypatch.setattr(choice, "BEST", 1)
    monkeypatch.setattr(verification, "ROUNDS", 1)
    batches = []

    @derived_object
    class KillTheServer(ms.measure_callback.PyMeasureCallback):
        def apply(self, task_scheduler, task_id, measure_candidates, builder_results, results):
            batches.append([bool(result.run_secs) for result in results])
            if len(batches) == 1:
                kill(local.servers["k"][0])

    def tune():
        local.ensure("k", 1)
        return tune_kernel(
            MATMUL,
            trials=12,
            tracker=local.tracker,
            key="k",
            work_dir=tmp_path,
            strategy=DropletStrategy(prior=None, draft=None),
            callbacks=[KillTheServer()],
            progress=None,
        )

    words = (
        f"no server of the key 'k' for 1 s.*schedules that were measured are kept in '{tmp_path}'"
    )
    with pytest.raises(KernelError, match=words) as raised:
        tune()
    measured = sum(map(bool, times(tmp_path)))
    assert measured == sum(batches[0]) == len(batches[0]) and f"The {measured} sch" in str(
        raised.value
    )
    result = tune()
    assert (result.known_trials, result.trials) == (measured, 12 - measured)
    assert result.verified and math.isnan(result.peak_gflops)
    assert len([secs for secs in times(tmp_path) if secs]) == 12
    assert [1e10] not in times(tmp_path)
    assert local.tracker in json.loads((tmp_path / MACHINE).read_text())["cpu"]


def scaled(factor):
    a = te.placeholder((16,), name="a")
    b = te.compute((16,), lambda i: a[i] * factor, name="b")
    return IRModule({"main": te.create_prim_func([a, b])})


@contextmanager
def verifier_of(local, directory):
    """Checks on a server of the fleet."""
    local.ensure("k", 1)
    servers = fleet.Fleet(local.tracker, "k", 1)
    pool = verification.verifying_pool()
    arguments = arguments_of(scaled(2.0))
    arrays = random_arrays(arguments, 0)
    try:
        yield verification.Verifier(
            directory, servers.target(), arguments, arrays, [0.0, 0.0], pool, servers.run
        )
    finally:
        pool.close()
        servers.close()


def test_a_wrong_kernel_is_seen_on_the_server(local, tmp_path):
    with verifier_of(local, tmp_path) as verifier:
        assert not verifier.expect(scaled(2.0)).reason
        right = verifier.check(verifier.build("right", scaled(2.0)))
        assert right.is_right
        wrong = verifier.check(verifier.build("wrong", scaled(3.0)))
        assert wrong.is_right is False and "argument 'b' differs by 5.0e-01" in wrong.reason


def test_servers_that_are_lost_while_winners_are_checked_make_nothing_wrong(
    local, tmp_path, monkeypatch
):
    monkeypatch.setattr(fleet, "WAIT_SECS", 1.0)
    with verifier_of(local, tmp_path) as verifier:
        assert not verifier.expect(scaled(2.0)).reason
        library = verifier.build("right", scaled(2.0))
        kill(local.servers["k"][0])
        with pytest.raises(verification.CannotCheck, match="no server of the key 'k' for 1 s"):
            verifier.check(library)
        with pytest.raises(verification.CannotCheck, match="no server of the key 'k' for 1 s"):
            verifier.time({"right": library})


def test_a_tracker_without_a_key_and_a_model_are_refused(capsys, tmp_path):
    with pytest.raises(KernelError, match="key is None: expected both, or neither"):
        tune_kernel(MATMUL, tracker="127.0.0.1:9190", work_dir=tmp_path)
    assert main(["tune", "model.onnx", "--tracker", "127.0.0.1:9190", "--key", "k"]) == 1
    assert "--tracker does not apply to a model, which 'model.onnx' is" in capsys.readouterr().err

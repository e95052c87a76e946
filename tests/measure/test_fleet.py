# SPDX-License-Identifier: Apache-2.0
"""Measuring on servers of TVM's RPC: a real tracker and real servers on this machine."""

import math
import socket
import subprocess
import sys
import threading
import time

import pytest
from fleets import await_kernel, export, inputs, kill, local_fleet

from tvm.s_tir.meta_schedule.runner import EvaluatorConfig
from tvm_droplet_ms.cli import main
from tvm_droplet_ms.measure import is_machinery_failure
from tvm_droplet_ms.measure.fleet import FleetError, FleetRunner
from tvm_droplet_ms.measure.fleet.session import set_threads
from tvm_droplet_ms.measure.fleet.tracker import Tracker

SHORT = EvaluatorConfig(number=1, repeat=1, min_repeat_ms=1)


@pytest.fixture(scope="module")
def fleet():
    with local_fleet() as fleet:
        fleet.ensure("pair", 2)
        yield fleet


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    directory = tmp_path_factory.mktemp("kernels")
    # 16 calls of 10 ms.
    calls = {"right": (), "crash": ("abort",), "hang": ("pause",), "sleep": ("usleep", 10_000)}
    return {name: export(directory, name, *call) for name, call in calls.items()}


@pytest.fixture
def runner_of(fleet):
    runners = []

    def make(key, **options):
        fleet.ensure(key, {"pair": 2, "one": 1}.get(key, 0))
        runners.append(FleetRunner(fleet.tracker, key, evaluator_config=SHORT, **options))
        return runners[-1]

    yield make
    for runner in runners:
        runner.close()


def results(runner, batch):
    return [future.result() for future in runner.run(batch)]


def test_kernels_are_timed_in_sessions(runner_of, kernels):
    runner = runner_of("one", near_best=1e9)
    for result in results(runner, inputs(kernels["right"], 2)):
        assert result.error_msg is None
        # Three in one session and two in another.
        assert len(result.run_secs) == 5
        assert all(0.0 < secs < 1e-3 for secs in map(float, result.run_secs))
    assert runner.stats.near_best == 2 and not runner.stats.failures


def test_two_servers_take_at_most_three_fifths_of_the_time_of_one(runner_of, kernels):
    """The kernel sleeps on the server."""
    secs = {}
    for key in ("one", "pair"):
        runner = runner_of(key, near_best_repeats=1, hopeless=math.inf)
        results(runner, inputs(kernels["right"]))  # The workers start.
        started = time.monotonic()
        measured = results(runner, inputs(kernels["sleep"], 4))
        secs[key] = time.monotonic() - started
        assert all(0.16 <= float(result.run_secs[0]) < 0.5 for result in measured)
    # A call that says how long it takes, and a repeat, each after one that is not counted.
    assert secs["one"] >= 4 * 4 * 0.16
    assert secs["pair"] <= 0.6 * secs["one"], secs


def test_faults_of_kernels_are_their_own_and_the_server_goes_on(runner_of, kernels, tmp_path):
    broken = tmp_path / "broken.so"
    broken.write_text("no library")
    runner = runner_of("one", timeout_sec=2.0)
    batch = [*inputs(kernels["hang"]), *inputs(str(broken)), *inputs(kernels["right"])]
    hung, failed, right = results(runner, batch)
    assert hung.run_secs is None
    assert hung.error_msg == "FleetRunner: killed after 2 s, its time limit"
    assert failed.run_secs is None and "broken.so" in failed.error_msg
    assert right.error_msg is None
    assert runner.stats.failures == {"timeout": 1, "error": 1} and not runner.stats.retries


def test_a_server_of_tvm_that_a_crash_ended_is_told_from_a_dead_one(fleet, runner_of, kernels):
    """TVM's server stops listening after a crash; one candidate must not take another with it."""
    runner = runner_of("one")
    (crashed,) = results(runner, inputs(kernels["crash"]))
    assert crashed.run_secs is None
    assert "it ended its process on the server 127.0.0.1:" in crashed.error_msg
    assert "start it anew, with droplet-ms serve" in crashed.error_msg
    assert runner.stats.failures == {"crash": 1} and not runner.stats.retries
    fleet.servers["one"].pop().terminate()


def test_a_server_of_ours_outlives_a_crash_and_ends_in_order(fleet, runner_of, kernels):
    command = ["-m", "tvm_droplet_ms", "serve", "--tracker", fleet.tracker, "--key", "ours"]
    serve = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    try:
        assert serve.stdout.readline().startswith("'ours' at 127.0.0.1:")
        runner = runner_of("ours", threads=1)
        crashed, right = results(runner, inputs(kernels["crash"]) + inputs(kernels["right"]))
        assert crashed.run_secs is None
        assert crashed.error_msg.endswith("its process was ended by SIGABRT")
        assert right.error_msg is None
        assert runner.stats.failures == {"crash": 1}
        # It has no more threads than it was started with.
        few = runner.remote().call(10.0, set_threads, 1000)
        assert few.is_machinery and "start it with TVM_NUM_THREADS=1000" in few.message
    finally:
        serve.terminate()
    assert serve.wait(10) == 0
    assert not Tracker(fleet.tracker).servers("ours")


def test_a_killed_server_costs_no_candidate(fleet, runner_of, kernels):
    runner = runner_of("pair", near_best_repeats=1)
    killed = fleet.servers["pair"][0]

    def end():
        await_kernel(killed)
        kill(killed)

    thread = threading.Thread(target=end)
    thread.start()
    measured = results(runner, inputs(kernels["sleep"], 3))
    thread.join()
    assert [result.error_msg for result in measured] == [None] * 3
    assert all(result.run_secs for result in measured)
    assert runner.stats.retries == 1 and not runner.stats.failures and not runner.fault


def test_without_servers_a_batch_ends_in_words_and_keeps_what_is_measured(
    fleet, runner_of, kernels
):
    runner = runner_of("one", near_best_repeats=1, wait_secs=1.0)
    (server,) = fleet.servers["one"]

    def end():
        while not runner.stats.runs:
            time.sleep(0.01)
        kill(server)

    thread = threading.Thread(target=end)
    thread.start()
    measured = results(runner, inputs(kernels["sleep"], 3))
    thread.join()
    assert [bool(result.run_secs) for result in measured] == [True, False, False]
    for result in measured[1:]:
        # Not held against the candidate.
        assert is_machinery_failure(result.error_msg) and result.run_secs is not None
    words = f"tracker at {fleet.tracker} has had no server of the key 'one' for 1 s. Start one"
    assert words in runner.fault and "droplet-ms serve --tracker" in runner.fault
    # TVM's class of an exception that passed through it.
    with pytest.raises(RuntimeError, match="no server of the key 'one'"):
        runner.run(inputs(kernels["right"]))


def test_no_server_ends_in_words(fleet):
    with pytest.raises(FleetError, match="has had no server of the key 'absent' for 0.5 s"):
        FleetRunner(fleet.tracker, "absent", wait_secs=0.5)


def closed_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def test_an_unreachable_tracker_ends_in_words_at_once(capsys, tmp_path):
    address = f"127.0.0.1:{closed_port()}"
    started = time.monotonic()
    with pytest.raises(FleetError, match=f"tracker at {address} does not answer: .*refused"):
        FleetRunner(address, "any")
    assert time.monotonic() - started < 2.0
    arguments = ["tune", "dense", "--tracker", address, "--key", "any", "--work-dir", str(tmp_path)]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"droplet-ms tune: error: the tracker at {address} does not answer: ")
    assert "Start one: python -m tvm.exec.rpc_tracker" in error
    assert main(["serve", "--tracker", address, "--key", "any"]) == 1
    assert "does not answer" in capsys.readouterr().err


def test_what_is_no_tracker_is_told(fleet):
    (server,) = fleet.ensure("one", 1)
    with pytest.raises(FleetError, match="does not answer|is no RPC tracker"):
        FleetRunner(f"127.0.0.1:{server.port}", "any")
    for address in ("localhost", "host:", "host:port", "host:0"):
        with pytest.raises(FleetError, match=f"tracker is '{address}', expected HOST:PORT"):
            FleetRunner(address, "any")

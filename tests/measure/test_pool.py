# SPDX-License-Identifier: Apache-2.0
"""The worker processes: every way that a task can fail, and that nothing is left behind."""

import contextlib
import errno
import gc
import itertools
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter

import measuring
import psutil
import pytest
from measuring import PATIENCE_SECS, Surroundings, eventually, outcome, outcomes

from tvm_droplet_ms.measure import TaskFailed, WorkerPool
from tvm_droplet_ms.measure.build import prepare_to_build
from tvm_droplet_ms.measure.pool import program

MEMORY_LIMIT = 1 << 30


@pytest.fixture(scope="module")
def shared(tmp_path_factory, warm_servers):
    """A pool of two workers that every fault here must leave intact."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        surroundings = Surroundings(tmp_path_factory.mktemp("pool"), monkeypatch, warm_servers)
        pool = WorkerPool(2, memory_limit=MEMORY_LIMIT)
        yield pool, surroundings
        pool.close()
        surroundings.assert_nothing_is_left()


@pytest.fixture
def starts_programs(monkeypatch):
    """Servers are programs of their own, as they are outside of tests."""
    monkeypatch.setattr(program, "subprocess", subprocess)


@pytest.fixture
def make_pool(surroundings):
    """Makes pools that are closed also when the test fails."""
    with contextlib.ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(
            contextlib.closing(WorkerPool(*args, **kwargs))
        )


def workers_of(pool: WorkerPool) -> list[psutil.Process]:
    """The idle workers, once all of them are there."""
    server = server_of(pool)
    assert eventually(lambda: len(server.children()) == pool.workers)
    return server.children()


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # It ended between the two questions.
        return False


def server_of(pool: WorkerPool) -> psutil.Process:
    """The program that holds the workers; knows where the pool keeps it."""
    assert pool._server is not None
    return psutil.Process(pool._server._program.pid)


def pids(pool: WorkerPool, tasks: int) -> list[int]:
    """The processes that tasks ran in."""
    futures = [pool.submit(PATIENCE_SECS, os.getpid) for _ in range(tasks)]
    return [future.result(PATIENCE_SECS) for future in futures]


MiB = 1 << 20

# By fault: the function, its time limit in seconds, the kind of failure, words of the message.
FAULTS = {
    "raises": (measuring.raise_error, 20, "error", "ValueError: the fault of this test"),
    "raises that the disk is full": (
        measuring.raise_no_space,
        20,
        "machinery",
        "No space left on device",
    ),
    "raises KeyboardInterrupt": (measuring.raise_interrupt, 20, "error", "the fault of this test"),
    "exits": (measuring.leave, 20, "error", "SystemExit: the fault of this test"),
    "exits at once": (measuring.leave_at_once, 20, "crash", "ended with status 3"),
    "exits as if well": (measuring.leave_as_if_well, 20, "crash", "ended with status 0"),
    "segfaults": (measuring.segfault, 20, "crash", "SIGSEGV"),
    "dies of a signal without a name": (measuring.die_of_signal_40, 20, "crash", "40"),
    "dies while it answers": (measuring.die_while_answering, 20, "crash", "ended with status 1"),
    "hangs": (measuring.hang, 1, "timeout", "1 s"),
    "hangs in C": (measuring.hang_in_c, 1, "timeout", "1 s"),
    "hangs with children": (measuring.hang_with_children, 1, "timeout", "1 s"),
    "hangs against SIGTERM": (measuring.hang_against_sigterm, 1, "timeout", "1 s"),
    "stopped": (measuring.hang_stopped, 1, "timeout", "1 s"),
    "crashes with children": (measuring.crash_with_children, 20, "crash", "SIGSEGV"),
    "eats memory": (measuring.eat_memory, 20, None, "1024 MiB"),
    "eats memory and keeps it": (measuring.eat_memory_and_keep_it, 20, None, ""),
    "eats memory in C": (measuring.eat_memory_in_c, 20, "crash", "SIGSEGV"),
    "eats file descriptors": (measuring.eat_file_descriptors_and_keep_them, 20, None, ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_fails_only_its_task(shared, fault):
    pool, surroundings = shared
    function, limit, kind, words = FAULTS[fault]
    start = time.monotonic()
    before = [pool.submit(20, measuring.echo, i) for i in range(4)]
    failing = pool.submit(limit, function)
    # Enough of them that the worker of the failing task, if it stays, gets some.
    after = [pool.submit(20, measuring.echo, i) for i in range(4, 44)]
    seen_kind, message = outcome(failing)
    results = outcomes(before + after)
    again = outcomes([pool.submit(20, measuring.echo, i) for i in range(10)])
    took = time.monotonic() - start
    assert results == [("value", i) for i in range(44)]
    assert again == [("value", i) for i in range(10)]
    assert seen_kind == kind if kind else seen_kind in ("error", "crash")
    assert words in message
    assert took < PATIENCE_SECS  # Hanging tasks never end.
    if kind == "timeout":
        assert took >= limit
    # The program that holds the workers, and the workers.
    assert eventually(lambda: len(surroundings.processes()) <= 3), surroundings.processes()


def test_worker_that_ran_out_of_memory_is_replaced(shared):
    pool, _ = shared
    failing = pool.submit(20, measuring.eat_memory_and_keep_most)
    after = [pool.submit(20, measuring.need_memory, 256) for _ in range(8)]
    kind, message = outcome(failing)
    assert kind in ("error", "crash") and "memory" in message
    assert outcomes(after) == [("value", 256)] * 8


@pytest.mark.parametrize("function", [measuring.generator, measuring.unreadable, measuring.closure])
def test_unpicklable_result_fails_only_its_task(shared, function):
    pool, _ = shared
    others = [pool.submit(20, measuring.echo, i) for i in range(10)]
    kind, value = outcome(pool.submit(20, function))
    assert kind == "error" or (function is measuring.closure and value() == 1)
    assert outcomes(others) == [("value", i) for i in range(10)]


def test_large_tasks_and_large_errors_at_once(shared):
    """Both directions of the connection are full at the same time."""
    pool, _ = shared

    def fail_at_length(task: bytes):
        raise ValueError("y" * 2 * MiB)

    futures = []

    def submit():
        for _ in range(32):
            futures.append(pool.submit(20, fail_at_length, b"x" * MiB))

    thread = threading.Thread(target=submit, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECS)
    assert len(futures) == 32, "the connection is blocked in both directions"
    kinds = Counter(kind for kind, _ in outcomes(futures))
    assert kinds == {"error": 32}


def test_time_that_is_over_ends_what_runs_and_what_waits(make_pool):
    pool = make_pool(1)
    assert outcome(pool.submit(20, measuring.echo, 1)) == ("value", 1)
    start = time.monotonic()
    pool.end_by(start + 2.0)
    futures = [pool.submit(60, measuring.echo, 2)]
    futures += [pool.submit(60, measuring.hang) for _ in range(3)]
    (done, running, *waiting) = outcomes(futures)
    took = time.monotonic() - start
    assert done == ("value", 2)
    assert running == ("closed", "ended, because the time is over")
    assert waiting == [("closed", "not begun, because the time is over")] * 2
    assert 2.0 <= took < PATIENCE_SECS
    assert outcome(pool.submit(60, measuring.echo, 3))[0] == "closed"
    pool.end_by(math.inf)
    assert outcome(pool.submit(60, measuring.echo, 4)) == ("value", 4)


def test_workers_stay_up(surroundings, make_pool):
    pool = make_pool(2)
    first = {worker.pid for worker in workers_of(pool)}
    assert os.getpid() not in first
    for _ in range(3):
        assert set(pids(pool, 10)) <= first
    pool.close()
    surroundings.assert_nothing_is_left()
    assert not first & set(pids(pool, 10)), "closed, it starts again when needed"


def test_closing_often_leaks_no_files_or_threads(make_pool):
    def held():
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    pool = make_pool(1)
    pids(pool, 1)
    pool.close()
    before = held()  # Perhaps those of the first run are not all gone.
    for _ in range(3):
        pids(pool, 1)
        pool.close()
    assert eventually(lambda: held()[0] <= before[0] and held()[1] <= before[1]), (before, held())


@pytest.mark.parametrize(
    ("end", "kind", "is_kept"),
    [(WorkerPool.close, "closed", False), (WorkerPool.drop_tasks, "machinery", True)],
    ids=["close", "drop_tasks"],
)
def test_tasks_are_ended_and_not_waited_for(surroundings, make_pool, end, kind, is_kept):
    pool = make_pool(2)
    pids(pool, 1)
    file = pathlib.Path(pool.directory) / "kept"
    file.write_text("a")
    hanging = [pool.submit(1000, measuring.hang_with_children) for _ in range(4)]
    assert eventually(lambda: len(surroundings.processes()) >= 7)
    start = time.monotonic()
    end(pool)
    kinds = [kind for kind, _ in outcomes(hanging)]
    # The tasks have 1000 s.
    assert kinds == [kind] * 4 and time.monotonic() - start < PATIENCE_SECS
    assert pids(pool, 1) and file.exists() is is_kept
    pool.close()
    surroundings.assert_nothing_is_left()


def test_dropped_pool_ends(surroundings):
    pool = WorkerPool(1)
    assert pool.submit(20, os.getpid).result()
    del pool
    gc.collect()
    surroundings.assert_nothing_is_left()


def test_dropped_pool_ends_after_failure(surroundings):
    def use() -> None:
        WorkerPool(1).submit(20, measuring.raise_error).result()

    with pytest.raises(TaskFailed):
        use()
    gc.collect()
    surroundings.assert_nothing_is_left()


@pytest.mark.parametrize("moment", ["at once", "noticed"])
@pytest.mark.parametrize("killed", [1, 2])
def test_idle_workers_killed_before_a_batch(make_pool, killed, moment):
    pool = make_pool(2)
    pids(pool, 1)
    idle = workers_of(pool)
    for worker in idle[:killed]:
        worker.kill()
        assert eventually(lambda worker=worker: not is_alive(worker))
    if moment == "noticed":
        assert eventually(lambda: not set(idle[:killed]) & set(workers_of(pool)))
    # More than the pipe to the workers holds.
    futures = [pool.submit(20, len, bytes(20_000)) for _ in range(64)]
    kinds = Counter(kind for kind, _ in outcomes(futures))
    # One that was given a task before its end was seen takes that task along.
    lost = killed if moment == "at once" else 0
    assert kinds["crash"] <= lost and kinds["value"] == 64 - kinds["crash"]


def test_idle_workers_killed_again_and_again(make_pool):
    pool = make_pool(2)
    pids(pool, 1)
    futures = []
    end = time.monotonic() + 1.5
    for i in itertools.count():
        futures.append(pool.submit(20, measuring.echo, i))
        if i % 50 == 0:
            for worker in server_of(pool).children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    worker.kill()
        time.sleep(0.005)
        if time.monotonic() > end:
            break
    kinds = Counter(kind for kind, _ in outcomes(futures))
    # Each kill may cost the task that its worker had; the others are done.
    assert set(kinds) <= {"value", "crash"}
    assert kinds["crash"] <= 2 * (len(futures) // 50 + 1)
    assert pids(pool, 4)


def test_worker_killed_in_its_task(surroundings, make_pool):
    pool = make_pool(2)
    marker = surroundings.directory / "started"

    def start_and_wait() -> None:
        marker.write_text(str(os.getpid()))
        measuring.hang()

    killed = pool.submit(1000, start_and_wait)
    others = [pool.submit(20, measuring.echo, i) for i in range(8)]
    assert eventually(lambda: marker.exists() and bool(marker.read_text()))
    os.kill(int(marker.read_text()), signal.SIGKILL)
    kind, message = outcome(killed)
    assert kind == "crash"
    assert "ended by SIGKILL, by hand or by the system for want of memory" in message
    assert outcomes(others) == [("value", i) for i in range(8)]
    marker.unlink()


def test_program_killed_in_batch(surroundings, make_pool):
    """Child processes of its workers end too."""
    pool = make_pool(2)
    done = pool.submit(20, measuring.echo, 1)
    assert outcome(done) == ("value", 1)
    failed = [pool.submit(1000, measuring.hang_with_children) for _ in range(6)]
    assert eventually(lambda: len(surroundings.processes()) >= 7)
    server_of(pool).kill()
    for kind, message in outcomes(failed):
        assert kind == "machinery"
        assert "the program that holds the worker processes ended, with status -9" in message
    assert outcome(pool.submit(20, measuring.echo, 2)) == ("value", 2)
    assert eventually(lambda: len(surroundings.processes()) <= 3), surroundings.processes()


def test_program_stuck_as_pool_is_closed(surroundings, make_pool):
    pool = make_pool(2)
    for _ in range(2):
        pool.submit(1000, measuring.hang_with_children)
    assert eventually(lambda: len(surroundings.processes()) == 7)
    server_of(pool).suspend()
    start = time.monotonic()
    pool.close()
    assert time.monotonic() - start < PATIENCE_SECS
    surroundings.assert_nothing_is_left()


def test_program_killed_between_batches(make_pool):
    pool = make_pool(1)
    before = pids(pool, 1)
    server_of(pool).kill()
    futures = [pool.submit(20, os.getpid) for _ in range(3)]
    results = outcomes(futures)
    # Those sent before the end was noticed are lost, no others.
    assert {kind for kind, _ in results} <= {"value", "machinery"}
    assert before != pids(pool, 1)


def test_no_process_group_is_killed_after_its_number_is_free(make_pool, monkeypatch):
    """The workers' numbers are free once the program is gone, and may be those of another user."""
    pool = make_pool(1)
    pids(pool, 1)
    server_of(pool).kill()
    process = pool._server._program._process
    assert eventually(lambda: process.returncode is not None)
    killed = []
    monkeypatch.setattr(os, "killpg", lambda group, number: killed.append(group))
    pool.close()
    assert killed == []


def test_every_task_fails_if_left_processes_cannot_be_ended(make_pool, monkeypatch):
    def refuse(session):
        raise PermissionError("not yours")

    pool = make_pool(1)
    pids(pool, 1)
    hanging = [pool.submit(1000, measuring.hang) for _ in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(program, "_end_session", refuse)
        server_of(pool).kill()
        for kind, message in outcomes(hanging):
            assert kind == "machinery" and "not yours" in message
    assert outcome(pool.submit(20, measuring.echo, 1)) == ("value", 1)


def test_task_cannot_be_cancelled(make_pool):
    """A result for a cancelled future would end the thread that receives results."""
    pool = make_pool(1)
    futures = [pool.submit(20, measuring.echo, i) for i in range(3)]
    assert not futures[1].cancel()
    assert outcomes(futures) == [("value", i) for i in range(3)]


def test_restart_that_fails_keeps_directory(starts_programs, make_pool, monkeypatch):
    """It holds the artifacts that are still to be measured, and TVM deletes their folders."""
    pool = make_pool(1)
    artifact = os.path.join(pool.directory, "artifact")
    pathlib.Path(artifact).touch()
    server_of(pool).kill()
    assert eventually(lambda: not pool._server.is_running)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/no/such/python")
        with pytest.raises(OSError, match="/no/such/python"):
            pool.submit(20, measuring.echo, 1)
    assert os.path.exists(artifact)
    assert outcome(pool.submit(20, measuring.echo, 1)) == ("value", 1)
    assert os.path.exists(artifact)


def fail_to_fork_at_first() -> None:
    """Replace the server's ``os.fork``, as where a user may have no more processes."""
    fork, failures = os.fork, iter(range(3))

    def fork_later():
        if next(failures, None) is not None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    os.fork = fork_later


def test_worker_that_cannot_be_forked(make_pool):
    pool = make_pool(1, prepare=fail_to_fork_at_first)
    results = [outcome(pool.submit(20, measuring.echo, 1)) for _ in range(4)]
    assert ("value", 1) in results
    for kind, message in results:
        if kind != "value":
            assert kind == "machinery"
            assert "no worker process can be started" in message
            assert "temporarily unavailable" in message


def test_program_that_cannot_start_reports_reason(starts_programs, make_pool, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [])
        pool = make_pool(1, quiet=True)
        kind, message = outcome(pool.submit(20, measuring.echo, 1))
    assert kind == "machinery" and "ModuleNotFoundError" in message


def test_workers_write_to_the_standard_error_unless_quiet(surroundings):
    program = """
import sys
import measuring
from tvm_droplet_ms.measure import WorkerPool

def shout(word):
    print(word, file=sys.stderr, flush=True)

for quiet in (True, False):
    pool = WorkerPool(1, quiet=quiet)
    pool.submit(20, shout, f"quiet = {quiet}").result()
    pool.close()
"""
    parent = surroundings.start(program)
    _, errors = parent.communicate(timeout=PATIENCE_SECS)
    assert parent.returncode == 0, errors
    assert "quiet = False" in errors and "quiet = True" not in errors


def test_program_killed_while_it_starts(surroundings, make_pool):
    """Its preparation makes temporary files."""
    started = surroundings.directory / "started"

    def prepare() -> None:
        tempfile.mkdtemp()
        started.touch()
        measuring.hang()

    pool = make_pool(1, prepare=prepare)
    assert eventually(started.exists)
    started.unlink()
    server_of(pool).kill()


def test_preparation_that_raises_leaves_the_directory(make_pool):
    pool = make_pool(1, prepare=measuring.raise_error)
    directory = pool._server.directory
    kind, message = outcome(pool.submit(20, measuring.echo, 1))
    assert kind == "machinery" and "the program that holds the worker processes" in message
    assert "ValueError: the fault of this test" in message
    assert os.path.isdir(directory)


def test_initializer_runs_once_in_every_worker(surroundings, make_pool):
    directory = surroundings.directory

    def count() -> None:
        with open(directory / f"ran-{os.getpid()}", "a") as file:
            file.write("x")

    pool = make_pool(2, initializer=count, max_tasks=2)
    used = pids(pool, 9)
    ran = {int(path.name[4:]): path.read_text() for path in directory.glob("ran-*")}
    assert ran == dict.fromkeys(used, "x")
    for path in directory.glob("ran-*"):
        path.unlink()


def test_workers_are_replaced_after_max_tasks(make_pool):
    pool = make_pool(1, max_tasks=3)
    assert list(Counter(pids(pool, 9)).values()) == [3, 3, 3]


def test_fresh_task_is_the_first_of_its_worker(make_pool):
    pool = make_pool(1)
    fresh = [False, False, True, False, True, True]
    used = [pool.submit(20, os.getpid, fresh=is_fresh).result() for is_fresh in fresh]
    assert used[0] == used[1] != used[2] == used[3]
    assert len(set(used[3:])) == 3


def test_workers_that_grow_are_replaced(make_pool):
    pool = make_pool(1, max_growth=100 * MiB, memory_limit=MEMORY_LIMIT)
    used = [outcome(pool.submit(20, measuring.leak, 64)) for _ in range(6)]
    assert {kind for kind, _ in used} == {"value"}
    # A third block of 64 MiB never fits.
    assert max(Counter(pid for _, pid in used).values()) == 2


def test_workers_run_on_the_chosen_cpus(make_pool):
    (cpu, *_) = sorted(os.sched_getaffinity(0))
    pool = make_pool(1, cpus=frozenset([cpu]))
    assert outcome(pool.submit(20, os.sched_getaffinity, 0)) == ("value", {cpu})


def test_paths_other_than_strings_are_ignored(make_pool, monkeypatch):
    """Python ignores them in ``sys.path``."""
    monkeypatch.setattr(sys, "path", [pathlib.Path("nowhere"), *sys.path])
    pool = make_pool(1)
    assert outcome(pool.submit(20, measuring.echo, 1)) == ("value", 1)


def test_failed_interpreter_start_cleans_up(starts_programs, surroundings, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(OSError, match="/no/such/python"):
        WorkerPool(1)
    surroundings.assert_nothing_is_left()


def test_lower_limit_on_memory_from_outside(surroundings):
    """As under ``ulimit -v``; raising it is not allowed, except to an administrator."""
    unshare = shutil.which("unshare")
    limit = 3 << 30
    program = f"""
import os, resource
resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))
from tvm_droplet_ms.measure import WorkerPool
pool = WorkerPool(1, memory_limit={2 * limit})
print(pool.submit(20, resource.getrlimit, resource.RLIMIT_AS).result()[0])
"""
    in_namespace = [unshare, "--user"] if os.getuid() == 0 and unshare else []
    printed = surroundings.run(*in_namespace, sys.executable, "-c", program)
    assert int(printed) == limit


PARENT = """
import os, sys, time
import measuring
from tvm_droplet_ms.measure import WorkerPool

pool = WorkerPool(1)
pool.submit(20, measuring.echo, 1).result()
hanging = [pool.submit(1000, measuring.hang_with_children) for _ in range(3)]
print(pool._server._program.pid, flush=True)
"""


def start_parent(surroundings, more: str) -> tuple["subprocess.Popen[str]", int]:
    """A program whose pool has hanging tasks, and the program that holds its workers."""
    parent = surroundings.start(PARENT + more)
    assert parent.stdout is not None
    server = int(parent.stdout.readline())
    # The two, a worker, and two that it started.
    assert eventually(lambda: len(surroundings.processes()) == 5)
    return parent, server


def test_an_interrupt_at_the_start_does_not_reach_the_server(starts_programs, make_pool):
    """A server that SIGINT ends while Python starts has a traceback in each task's message."""
    pool = make_pool(1)
    server = server_of(pool)
    for _ in range(100):
        server.send_signal(signal.SIGINT)
        server.send_signal(signal.SIGTERM)
        time.sleep(0.005)
    assert pool.submit(PATIENCE_SECS, abs, -1).result() == 1
    assert server_of(pool).pid == server.pid


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda s: s.name)
def test_parent_killed(surroundings, number):
    """SIGTERM goes to each process, as batch systems send it."""
    parent, server = start_parent(surroundings, "time.sleep(1000)")
    if number == signal.SIGTERM:
        os.kill(server, number)
    parent.send_signal(number)
    assert parent.wait(PATIENCE_SECS) == -number
    surroundings.assert_nothing_is_left()


def test_parent_ends_by_itself(surroundings):
    end = surroundings.directory / "end"
    wait = f"while not os.path.exists({str(end)!r}): time.sleep(0.02)"
    parent, _ = start_parent(surroundings, wait)
    end.touch()
    assert parent.wait(PATIENCE_SECS) == 0
    end.unlink()
    surroundings.assert_nothing_is_left()


def test_parent_interrupted_while_it_waits(surroundings):
    parent, _ = start_parent(surroundings, "hanging[0].result()")
    os.killpg(parent.pid, signal.SIGINT)
    parent.wait(PATIENCE_SECS)  # The tasks have 1000 s.
    assert parent.returncode != 0 and "KeyboardInterrupt" in parent.communicate()[1]
    surroundings.assert_nothing_is_left()


def test_parent_killed_while_child_of_it_lives(surroundings):
    """A forked child, a loader of data for one, holds all that was open."""
    parent = surroundings.start(
        PARENT
        + """
if os.fork() == 0:
    print(os.getpid(), flush=True)
    os.closerange(0, 3)
    time.sleep(1000)
time.sleep(1000)
"""
    )
    assert parent.stdout is not None
    parent.stdout.readline()
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    try:
        assert eventually(lambda: [process.pid for process in surroundings.processes()] == [child])
    finally:
        os.kill(child, signal.SIGKILL)


def test_forked_child_exit_leaves_pool_running(surroundings):
    program = """
import os, sys
import measuring
from tvm_droplet_ms.measure import WorkerPool

pool = WorkerPool(1)
worker = pool.submit(20, os.getpid).result()
file = os.path.join(pool.directory, "artifact")
open(file, "w").close()
if os.fork() == 0:
    sys.exit(0)
os.wait()
assert os.path.exists(file)
assert pool.submit(20, os.getpid).result() == worker
print("well")
"""
    assert surroundings.run(sys.executable, "-c", program) == "well\n"


LATE = """
import atexit, sys

def late():
    try:
        pool.submit(60, int, 3).result()
    except RuntimeError as error:
        print(error, flush=True)

atexit.register(late)  # The first registered, and so the last called.
from tvm_droplet_ms.measure import WorkerPool
pool = WorkerPool(1)
print(pool.submit(60, int, 2).result(), flush=True)
"""


def test_no_worker_starts_while_the_interpreter_ends(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LATE],
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_SECS,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "2",
        "no worker process can be started: the interpreter is ending",
    ]
    assert not list(tmp_path.iterdir())


def prepare_with_scipy() -> None:
    import scipy.stats  # noqa: F401


def test_scipy_is_imported_while_pytorch_is_kept_out(make_pool):
    pool = make_pool(1, prepare=prepare_with_scipy)
    assert outcome(pool.submit(PATIENCE_SECS, os.getpid))[0] == "value"


def test_pytorch_is_imported_only_by_tasks_that_need_it(tmp_path_factory, monkeypatch, make_pool):
    folder = tmp_path_factory.mktemp("pytorch")
    (folder / "torch.py").write_text("name = 'PyTorch'\n")
    monkeypatch.syspath_prepend(str(folder))
    pool = make_pool(1, prepare=prepare_to_build)

    def imported() -> list[str]:
        return [name for name in ("tvm", "torch") if name in sys.modules]

    def import_it() -> str:
        import torch

        return str(torch.name)

    assert outcome(pool.submit(PATIENCE_SECS, imported)) == ("value", ["tvm"])
    assert outcome(pool.submit(PATIENCE_SECS, import_it)) == ("value", "PyTorch")

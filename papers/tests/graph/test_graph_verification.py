# SPDX-License-Identifier: Apache-2.0
"""Whole graphs are compared with the input before one of them is taken."""

import itertools
import os
import signal

import filelock
import numpy as np
import pytest
import small_models
import stub_bench
import tvm_ffi
from small_models import check_outputs
from stub_bench import StubBench, operators, price_of_size, run_with, whole_block

import tvm
from tvm import relax
from tvm_droplet_ms.frontends.imported import Reference
from tvm_droplet_ms.measure import TaskFailed
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.tuning.check.output_check import OutputCheck
from tvm_droplet_papers.graph import function_search, optimizer
from tvm_droplet_papers.graph.extraction import integer_program
from tvm_droplet_papers.graph.extraction.extract import GAP, extract
from tvm_droplet_papers.graph.report import GraphTimes
from tvm_droplet_papers.graph.verification import INPUT, verify


@pytest.fixture(autouse=True)
def fixed_machine(monkeypatch):
    monkeypatch.setattr(optimizer, "measure_machine", lambda threads=1: stub_bench.RATES)


def block_bench(make=StubBench, **options):
    """A bench on which one convolution is twice as fast as the branches of a RepVGG block."""
    return make(price_of_size, whole_block(2e-3, 1e-3), **options)


def kept(bench, directory, before=None):
    """The result of a search that gives its input, a RepVGG block, back."""
    before = before or small_models.repvgg_block()
    result = run_with(bench, before, directory)
    assert tvm_ffi.structural_equal(result.mod, before)
    report = result.reports[0]
    assert report.weight_bytes_after == report.weight_bytes_before
    return result


def test_a_faster_graph_of_equal_outputs_is_taken(tmp_path):
    before = small_models.repvgg_block()
    bench = block_bench()
    result = run_with(bench, before, tmp_path)
    assert operators(result.mod)["conv2d"] == 1
    assert bench.timed[0][:2] == bench.timed[1] == [INPUT, "graph 1"]
    check_outputs(before, result.mod)
    report = result.reports[0]
    times = {graph.name: graph.whole_secs for graph in report.measured.graphs}
    assert times[INPUT] == 2e-3 and times["graph 1"] == 1e-3
    assert "the input: whole 2000.0 us" in str(report) and "kernels 0.0 us (-100%)" in str(report)
    assert "taken: graph 1" in str(result) and "2.00 times as fast" in str(result)
    assert report.weight_bytes_after < report.weight_bytes_before


def test_outputs_that_say_nothing_cost_no_tuning(tmp_path, monkeypatch):
    monkeypatch.setattr(OutputCheck, "unchecked", [0])
    bench = block_bench()
    assert "the outputs 0 are 0 for all inputs" in str(kept(bench, tmp_path))
    assert not bench.ran and not bench.tuned


def test_what_was_not_timed_is_not_called_refused():
    assert "whole not timed" in str(GraphTimes(INPUT, 1.0, 1.0, 0.0, 0.0))
    assert "whole refused" in str(GraphTimes("graph 1", 1.0, 1.0, 0.0, 1.0, True))


def test_wrong_outputs_are_refused_however_fast(tmp_path):
    bench = block_bench(error=1e-2)
    result = kept(bench, tmp_path)
    assert "graph 1: whole refused" in str(result)
    assert "refused for other outputs: graph 1 (1.0e-02" in str(result)


@pytest.mark.parametrize("fast", [1e-3, 0.995e-3, 1.5e-3], ids=["equal", "noise", "slower"])
def test_a_tie_is_the_inputs(fast, tmp_path):
    result = kept(StubBench(price_of_size, whole_block(1e-3, fast)), tmp_path)
    assert "taken: the input" in str(result) and "a tie, or slower" in str(result)


@pytest.mark.parametrize(("branch", "is_run"), [(20e-6, False), (80e-6, True)])
def test_a_graph_that_promises_little_is_not_run(branch, is_run, tmp_path):
    """Without its branch of 1x1 the block, of some 10 ms, would be 0.2% or 0.8% faster."""

    def price(kernel):
        is_branch = kernel.operator.name == "conv2d" and (1, 1) in {
            type_.shape[axes] for type_ in kernel.operands for axes in (slice(2), slice(2, None))
        }
        return branch if is_branch else 10e-3

    bench = StubBench(price, whole_block(2e-3, 1e-3))
    result = run_with(bench, small_models.repvgg_block(), tmp_path)
    assert bool(bench.ran) == is_run
    assert ("graph 1 is 2.00 times as fast" in str(result)) == is_run
    assert ("no graph saves 0.5% by its estimate" in str(result)) != is_run


@pytest.fixture
def heeding_sigint():
    """A background job of a shell ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_gives_the_input_back(tmp_path, heeding_sigint):
    handler = signal.getsignal(signal.SIGINT)
    bench = block_bench(asking=lambda: os.kill(os.getpid(), signal.SIGINT))
    result = kept(bench, tmp_path)
    assert "interrupted" in result.reports[0].measured.verdict
    assert bench.is_closed and not bench.ran
    assert signal.getsignal(signal.SIGINT) is handler


def test_an_interrupt_in_the_solver_waits_for_it(tmp_path, heeding_sigint, monkeypatch):
    """The solver is C++: Python sees the signal when it returns."""
    solved = []

    def interrupted(*args, **options):
        if not solved:
            os.kill(os.getpid(), signal.SIGINT)
        solved.append(milp(*args, **options))
        return solved[-1]

    milp = integer_program.milp
    monkeypatch.setattr(integer_program, "milp", interrupted)
    bench = block_bench()
    result = kept(bench, tmp_path)
    assert solved and "interrupted" in result.reports[0].measured.verdict
    assert bench.is_closed and not bench.ran


def test_the_last_extractions_are_within_the_time(tmp_path, monkeypatch):
    """They share a quarter of what is left, and have next to nothing after the end."""
    limits = []

    def timed_extract(problem, time_limit=20.0, gap=GAP):
        limits.append(time_limit)
        return extract(problem, time_limit, gap)

    monkeypatch.setattr(function_search, "extract", timed_extract)
    rough = {function_search.REWARD_SECS, function_search.ROUND_SECS}
    for budget in (20.0, 0.1):
        limits.clear()
        run_with(block_bench(), small_models.attention(), tmp_path, time_budget_s=budget)
        last = [limit for limit in limits if limit not in rough]
        assert last
        for others, limit in enumerate(reversed(last), 1):
            share = function_search.FINAL_SHARE * budget / others
            assert limit <= max(share, function_search.LEAST_FINAL_SECS)


def test_only_kernels_that_tell_graphs_apart_get_more_trials(tmp_path):
    bench = block_bench()
    run_with(bench, small_models.repvgg_block(), tmp_path)
    graphs = list(dict.fromkeys(graph for graph, _, _ in bench.tuned))
    common = set.intersection(*(graph.workloads for graph in graphs))
    assert len(graphs) > 1 and {"conv2d", "relu"} <= common < graphs[0].workloads
    assert {(trials, frozenset(left)) for _, trials, left in bench.tuned} == {
        (4, frozenset()),
        (8, frozenset(common)),
        (16, frozenset(common)),
        (24, frozenset(common)),
        (28, frozenset(common)),
        (32, frozenset(common)),
    }


def test_without_time_the_input_and_the_cheapest_graph_are_compared(tmp_path):
    bench = block_bench()
    bench.has_time = False
    result = run_with(bench, small_models.repvgg_block(), tmp_path)
    assert {trials for _, trials, _ in bench.tuned} == {4}
    assert [graph.name for graph in result.reports[0].measured.graphs] == [INPUT, "graph 1"]


def test_a_graph_that_does_not_compile_is_left_out(tmp_path):
    class Failing(StubBench):
        def compile(self, graph, check):
            if graph.mod is not self.ran[0]:
                raise tvm.error.InternalError("no such kernel")
            return super().compile(graph, check)

    result = kept(block_bench(Failing), tmp_path)
    assert "graph 1 was left out, TVM raised: no such kernel" in str(result)


@pytest.mark.parametrize(
    "error", [TaskFailed("crash", "signal 11"), OSError(28, "No space left on device")]
)
def test_graphs_that_cannot_be_timed_give_the_input_back(error, tmp_path):
    class Failing(StubBench):
        def time_graphs(self, graphs, inputs):
            raise error

    bench = block_bench(Failing)
    result = kept(bench, tmp_path)
    assert f"the graphs could not be timed: {error}" in str(result) and bench.is_closed


def test_other_functions_than_main_are_left_alone(tmp_path):
    before = small_models.repvgg_block()
    before["other"] = before["main"].with_attr("global_symbol", "other")
    result = run_with(block_bench(), before, tmp_path)
    assert tvm_ffi.structural_equal(result.mod["other"], before["other"])
    notes = {report.name: report.note for report in result.reports}
    assert notes["other"] == "only main can be run to compare graphs"


def test_weights_that_are_parameters_stay_parameters(tmp_path):
    mod = small_models.weights_as_parameters(64)
    bench = StubBench(price_of_size)
    bench.whole = lambda mod: 1e-3 if mod is not bench.ran[0] else 2e-3
    result = run_with(bench, mod, tmp_path)
    assert len(result.mod["main"].params) == 3
    check_outputs(mod, result.mod, 1e-5)


def test_variances_that_are_parameters_are_tried_with_positive_values(tmp_path):
    """The outputs say something: a graph whose outputs are wrong is refused for them."""
    mod = small_models.norm_of_parameters()
    bench = StubBench(price_of_size, error=1e-2)
    bench.whole = lambda mod: 1e-3 if mod is not bench.ran[0] else 2e-3
    result = kept(bench, tmp_path, mod)
    assert "refused for other outputs: graph 1 (1.0e-02" in str(result)


def test_what_cannot_be_compared_is_left_alone(tmp_path):
    w = small_models.Weights()

    def body(emit, x):
        return emit(relax.op.matmul(x, w(4, 4, dtype="float16")))

    before = small_models.module([(3, 4)], body, "float16")
    bench = StubBench(price_of_size)
    result = kept(bench, tmp_path, before)
    assert "it cannot be run to compare graphs" in str(result) and not bench.asked


def test_a_directory_of_another_target_is_refused(tmp_path):
    run_with(StubBench(price_of_size), small_models.attention(), tmp_path, rules=(), layouts=False)
    with pytest.raises(ValueError, match="was made for target"):
        optimizer.optimize(
            small_models.attention(),
            {"kind": "llvm", "mcpu": "x86-64-v2"},
            work_dir=tmp_path,
            make_bench=StubBench(price_of_size).make,
        )


def test_a_directory_has_one_writer(tmp_path):
    """Another process's lock is refused; the own one is held while kernels are timed."""

    def is_held():
        with pytest.raises(filelock.Timeout), filelock.FileLock(tmp_path / ".lock", timeout=0):
            pytest.fail("the lock was free")

    bench = block_bench(asking=is_held)
    with filelock.FileLock(tmp_path / ".lock"):
        with pytest.raises(ModelError, match="another process tunes in"):
            run_with(bench, small_models.repvgg_block(), tmp_path)
        assert not bench.asked
    run_with(bench, small_models.repvgg_block(), tmp_path, time_budget_s=10.0)
    assert bench.asked
    with filelock.FileLock(tmp_path / ".lock", timeout=0):
        pass


def test_the_environment_stays_as_it_was(tmp_path, monkeypatch):
    monkeypatch.delenv("TVM_NUM_THREADS", raising=False)
    monkeypatch.setenv("TVM_BIND_THREADS", "1")
    before, during = dict(os.environ), []
    bench = block_bench(asking=lambda: during.append(os.environ["TVM_NUM_THREADS"]))
    run_with(bench, small_models.repvgg_block(), tmp_path)
    assert set(during) == {"1"}
    assert dict(os.environ) == before


def test_a_price_and_a_directory_are_refused(tmp_path):
    with pytest.raises(ValueError, match="price and work_dir are both given"):
        optimizer.optimize(
            small_models.attention(), "llvm", price=stub_bench.BOUND, work_dir=tmp_path
        )


class Made:
    """A graph with made-up seconds of each round, again from the first after the last."""

    def __init__(self, secs, offset=0.0):
        self.secs, self.offset = itertools.cycle(secs), offset

    def __call__(self, inputs):
        return [np.ones(3) + self.offset]


class Said(Made):
    """One with a second output that is all of one value."""

    def __call__(self, inputs):
        return [np.ones(3), np.full(3, self.offset)]


ROUNDS = 7


def made_up(graphs, inputs):
    """A clock that reads the graphs' seconds."""
    return {name: [next(graph.secs) for _ in range(ROUNDS)] for name, graph in graphs.items()}


CHECK = OutputCheck(Reference("NumPy", Made([1.0])), ((),), ([np.ones(3)],), 1e-4)


def test_the_fastest_of_three_is_taken_and_noise_is_no_gain():
    """Made-up times of seven rounds: one graph is faster in all, one on average only."""
    graphs = {INPUT: Made([1.0]), "noisy": Made([0.7, 1.2, 1.1, 0.6]), "sure": Made([0.95])}
    verdict = verify(graphs, CHECK, made_up)
    assert verdict.winner == "sure" and verdict.median_secs("sure") == 0.95
    graphs["sure"] = Made([0.5], offset=2e-4)
    verdict = verify(graphs, CHECK, made_up)
    assert verdict.winner == INPUT and "sure" not in verdict.secs
    graphs[INPUT] = Made([1.0], offset=1.0)
    assert "nothing can be compared" in verify(graphs, CHECK, made_up).reason


@pytest.mark.parametrize(
    ("value", "reason"), [(np.nan, "not finite"), (np.inf, "not finite"), (0.0, "are 0")]
)
def test_outputs_that_say_nothing_leave_the_input(value, reason):
    """A second output without a number in it is equal to that of any graph."""
    graphs = {INPUT: Said([1.0], value), "fast": Said([0.5], value)}
    expected = graphs[INPUT](())
    check = OutputCheck(Reference("NumPy", graphs[INPUT]), ((),), (expected,), 1e-4)
    verdict = verify(graphs, check, made_up)
    assert verdict.winner == INPUT and not verdict.secs
    assert verdict.deviations == {INPUT: 0.0, "fast": 0.0}
    assert reason in verdict.reason


def test_a_graph_that_was_faster_for_a_while_is_no_faster():
    graphs = {INPUT: Made([1.0]), "lucky": Made([0.5] * ROUNDS + [1.0] * ROUNDS)}
    verdict = verify(graphs, CHECK, made_up)
    assert verdict.winner == INPUT and verdict.median_secs("lucky") == 0.5
    assert "2.00 times as fast as the input, but not when both were timed again" in verdict.reason
    graphs["sure"] = Made([0.6])
    assert verify(graphs, CHECK, made_up).winner == "sure"

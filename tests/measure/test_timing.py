# SPDX-License-Identifier: Apache-2.0
"""Timing of candidates: with made-up times, and with TVM's evaluator on real kernels."""

import math
import time
from itertools import pairwise

import numpy as np
import pytest

import tvm
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig
from tvm.s_tir.meta_schedule.runner.local_runner import default_run_evaluator
from tvm.script import tirx as T
from tvm_droplet_ms.measure.timing import TimingConfig, time_candidate

BEST = 1e-3
ASKED = EvaluatorConfig(number=2, repeat=1, min_repeat_ms=0, enable_cpu_cache_flush=False)
ARGUMENTS = [["TENSOR", "float32", [2]], ["TENSOR", "int32", [1]]]


def counting_kernel(length):
    """A chain of `length` dependent operations, which also counts its calls."""

    @T.prim_func
    def main(chain: T.Buffer((2,), "float32"), calls: T.Buffer((1,), "int32")):
        T.func_attr({"global_symbol": "main"})
        calls[0] = calls[0] + 1
        for _ in range(length):
            chain[0] = chain[0] * T.float32(0.5) + chain[1]

    return tvm.IRModule({"main": main})


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Paths of kernels by how long they take: about 10 ns, 100 us and 100 ms."""
    folder = tmp_path_factory.mktemp("kernels")
    paths = {}
    for name, length in (("tiny", 1), ("quick", 100_000), ("slow", 100_000_000)):
        paths[name] = str(folder / f"{name}.so")
        tvm.tirx.build(counting_kernel(length), target="llvm").export_library(paths[name])
    return paths


class Evaluator:
    """Records its arguments; each call of the kernel returns `secs`."""

    def __init__(self, secs, real=False):
        self.secs = secs
        self.real = real
        self.configs = []
        self.addresses = []
        self.times = []

    def __call__(self, module, device, config, arguments):
        assert len(self.configs) < 20, "it goes on for ever"
        self.configs.append(config)
        self.addresses.append([np.from_dlpack(args[0]).ctypes.data for args in arguments])
        self.times.append(
            default_run_evaluator(module, device, config, arguments)
            if self.real
            else [self.secs] * (config.repeat * len(arguments))
        )
        return self.times[-1]


class Allocate:
    """Allocates zeros and keeps all of them."""

    def __init__(self):
        self.calls = []

    def __call__(self, device, args_info, repeat):
        new = [[tvm.runtime.empty(s, d, device) for _, d, s in args_info] for _ in range(repeat)]
        for _, calls in new:
            calls.copyfrom(np.zeros(1, "int32"))
        self.calls += [calls for _, calls in new]
        return new

    @property
    def count(self):
        return sum(int(calls.numpy()[0]) for calls in self.calls)


def configured(evaluate=None, evaluator=ASKED, **changes):
    settings = {
        "timeout_sec": 30.0,
        "evaluator": evaluator,
        "alloc_repeat": 1,
        "cooldown_sec": 0.0,
        "hopeless": 3.0,
        "near_best": 1.1,
        "near_best_repeats": 5,
        "f_alloc_argument": None,
        "f_run_evaluator": evaluate,
        "f_cleanup": None,
    }
    return TimingConfig(**(settings | changes))


def timed(path, best=BEST, **config):
    return time_candidate(configured(**config), path, "cpu", ARGUMENTS, best)


@pytest.mark.parametrize(
    ("secs", "best", "repeat", "verdict", "repeats"),
    [
        # The first candidate of a task is the best.
        (BEST * 100, math.inf, 1, "near best", [1] * 5),
        (BEST, BEST, 1, "near best", [1] * 5),
        (BEST / 2, BEST, 3, "near best", [3, 1, 1]),
        # It has its repeats already.
        (BEST, BEST, 6, "timed", [6]),
        (BEST * 1.11, BEST, 1, "timed", [1]),
        (BEST * 2.99, BEST, 3, "timed", [3]),
        (BEST * 3.1, BEST, 3, "hopeless", []),
    ],
)
def test_repeats_and_verdict_follow_the_best(kernels, secs, best, repeat, verdict, repeats):
    evaluate = Evaluator(secs)
    asked = ASKED._replace(number=7, repeat=repeat)
    timing = timed(kernels["quick"], best, evaluate=evaluate, evaluator=asked)
    assert (timing.verdict, timing.secs) == (verdict, [secs] * max(1, sum(repeats)))
    first, *others = evaluate.configs
    assert (first.number, first.repeat, first.min_repeat_ms) == (1, 1, 0)
    assert others == [asked._replace(repeat=count) for count in repeats]


def test_candidate_near_best_is_repeated_on_new_arguments(kernels):
    evaluate = Evaluator(BEST * 1.09)

    timing = timed(kernels["quick"], evaluate=evaluate)

    assert (timing.verdict, timing.secs) == ("near best", [BEST * 1.09] * 5)
    # The one call shares the arguments of the first repeat; after that each has its own.
    addresses = [address for (address,) in evaluate.addresses[1:]]
    assert all(one != other for one, other in pairwise(addresses))


@pytest.mark.parametrize("real", [False, True])
def test_each_allocation_is_repeated(kernels, real):
    evaluate = Evaluator(BEST * 2, real)
    asked = ASKED._replace(repeat=3)

    timing = timed(kernels["quick"], math.inf, evaluate=evaluate, evaluator=asked, alloc_repeat=2)

    assert len(timing.secs) == 6
    assert len(set(evaluate.addresses[1])) == 2


@pytest.mark.parametrize("secs", [math.nan, math.inf, 0.0, -1.0])
@pytest.mark.parametrize("best", [BEST, math.inf])
def test_invalid_time_ends_timing(kernels, secs, best):
    timing = timed(kernels["quick"], best, evaluate=Evaluator(secs))

    np.testing.assert_array_equal(timing.secs, [secs] * len(timing.secs))


def test_times_may_be_an_array(kernels):
    evaluate = Evaluator(BEST)

    timing = timed(kernels["quick"], evaluate=lambda *call: np.array(evaluate(*call)))

    assert timing.secs == [BEST] * 5


@pytest.mark.parametrize("milliseconds", [1, 100])
def test_number_of_calls_makes_repeat_as_long_as_asked(kernels, milliseconds):
    evaluate = Evaluator(2e-5)
    asked = ASKED._replace(min_repeat_ms=milliseconds)

    timed(kernels["quick"], evaluate=evaluate, evaluator=asked)

    for config in evaluate.configs[1:]:
        assert 1.0 <= config.number * 2e-5 / (milliseconds * 1e-3) < 1.5
        assert config._replace(number=2) == asked


def test_tvm_lengthens_no_repeat(kernels):
    """It calls the kernel as often as the number says, and once more to warm up."""
    ratios = []
    # Where the machine's noise makes the one call long, TVM does lengthen the repeats.
    for _ in range(5):
        allocate, evaluate = Allocate(), Evaluator(None, real=True)
        asked = ASKED._replace(number=1, min_repeat_ms=5)
        timing = timed(
            kernels["quick"],
            math.inf,
            evaluate=evaluate,
            evaluator=asked,
            f_alloc_argument=allocate,
            near_best_repeats=1,
        )
        ratios.append((allocate.count - 2) / (evaluate.configs[1].number + 1))
        assert timing.secs == evaluate.times[1]
    assert min(ratios) == 1.0


def test_cache_is_flushed_as_configured(kernels):
    evaluate = Evaluator(BEST * 2)
    asked = ASKED._replace(min_repeat_ms=100, enable_cpu_cache_flush=True)

    timed(kernels["quick"], evaluate=evaluate, evaluator=asked)

    assert [config.enable_cpu_cache_flush for config in evaluate.configs] == [True, True]
    assert evaluate.configs[1] == asked


def test_tvm_flushes_the_cache(kernels):
    asked = ASKED._replace(repeat=2, enable_cpu_cache_flush=True)

    timing = timed(kernels["quick"], math.inf, evaluator=asked)

    assert len(timing.secs) == 5
    assert all(1e-6 < secs < 1e-1 for secs in timing.secs)


def test_hopeless_kernel_is_called_once_unless_none_is_hopeless(kernels):
    allocate = Allocate()
    quick = min(timed(kernels["quick"], math.inf).secs)

    timing = timed(kernels["slow"], 1e-4, f_alloc_argument=allocate)
    patient = timed(kernels["slow"], 1e-4, hopeless=math.inf, evaluator=ASKED._replace(number=1))

    assert patient.verdict == "timed"
    assert (timing.verdict, len(timing.secs), allocate.count) == ("hopeless", 1, 1)
    # It does 1000 times the work of the quick one, however fast this machine is.
    assert timing.secs[0] > 100 * quick


def test_hopeless_kernel_shorter_than_cold_start_is_called_few_times(kernels):
    allocate = Allocate()

    timing = timed(kernels["quick"], 1e-5, f_alloc_argument=allocate)

    assert (timing.verdict, len(timing.secs)) == ("hopeless", 1)
    assert allocate.count <= 3


@pytest.mark.parametrize("name", ["tiny", "quick"])
def test_kernel_is_not_hopeless_relative_to_itself(kernels, name):
    """A single call of a kernel of 10 ns is mostly the clock's own time."""
    evaluator = ASKED._replace(number=1, min_repeat_ms=1)
    best = min(timed(kernels[name], math.inf, evaluator=evaluator).secs)

    verdicts = [timed(kernels[name], best, evaluator=evaluator).verdict for _ in range(9)]

    assert verdicts.count("hopeless") <= 2, verdicts


def test_cleanup_is_called_exactly_once(kernels, tmp_path):
    calls = []

    def fail(*_):
        raise RuntimeError("no time")

    timed(kernels["quick"], evaluate=Evaluator(BEST), f_cleanup=lambda: calls.append("timed"))
    with pytest.raises(RuntimeError, match="no time"):
        timed(kernels["quick"], evaluate=fail, f_cleanup=lambda: calls.append("raised"))
    with pytest.raises(RuntimeError, match="no time"):
        timed(kernels["quick"], f_alloc_argument=fail, f_cleanup=lambda: calls.append("no memory"))
    with pytest.raises(ValueError, match="cannot find file"):
        timed(str(tmp_path / "none.so"), f_cleanup=lambda: calls.append("not loaded"))

    assert calls == ["timed", "raised", "no memory", "not loaded"]


def test_cooldown_follows_each_candidate(kernels):
    start = time.perf_counter()

    timed(kernels["quick"], evaluate=Evaluator(BEST * 2), cooldown_sec=0.2)

    assert time.perf_counter() - start > 0.2


def test_seconds_are_split_into_loading_and_timing(kernels):
    def allocate(device, args_info, repeat):
        time.sleep(0.1)
        return Allocate()(device, args_info, repeat)

    start = time.perf_counter()
    timing = timed(
        kernels["quick"], evaluate=Evaluator(BEST * 2), f_alloc_argument=allocate, cooldown_sec=0.5
    )
    elapsed = time.perf_counter() - start

    assert timing.load_secs > 0.0
    assert timing.timing_secs >= 0.1
    assert timing.load_secs + timing.timing_secs + 0.5 <= elapsed  # The cooldown is in neither.

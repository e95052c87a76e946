# SPDX-License-Identifier: Apache-2.0
"""Times of kernels whose weights are not in the caches, on arguments that are kept."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import tvm_ffi

import tvm
from tvm import te
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig
from tvm.target import Target
from tvm_droplet_ms.model.kernels.weights.weight_marks import REUSES_WEIGHTS
from tvm_droplet_ms.tuning import cold_timing
from tvm_droplet_ms.tuning.cold_timing import (
    FEWEST_CALLS,
    MOST_CALLS,
    InsideTiming,
    allocate_or_keep,
    time_cold,
)


class MadeUpModule:
    """A kernel whose calls take made-up times."""

    entry_name = "main"

    def __init__(self, times):
        self.times = iter(times)
        self.warm_ups = []
        self.asked = []

    def __getitem__(self, name):
        return lambda *arguments: self.warm_ups.append((name, arguments))

    def time_evaluator(self, func_name, *, dev, **options):
        self.asked.append((func_name, dev, options))
        return lambda *_arguments: SimpleNamespace(
            results=[next(self.times) for _ in range(options["repeat"])]
        )


def test_a_repeat_is_the_median_of_its_cold_calls():
    module = MadeUpModule([3.0, 1.0, 9.0, 4.0, 4.0, 5.0, 2.0, 8.0, 2.0, 7.0, 6.0, 6.0])
    config = EvaluatorConfig(number=3, repeat=2, min_repeat_ms=20)
    assert time_cold(module, "cpu", config, [("a",), ("b",)]) == [3.0, 4.0, 2.0, 6.0]
    assert module.warm_ups == [("main", ("a",)), ("main", ("b",))]
    assert module.asked == 4 * [
        (
            "main",
            "cpu",
            {
                "number": 1,
                "repeat": 3,
                "min_repeat_ms": 0,
                "f_preproc": "cache_flush_cpu_non_first_arg",
            },
        )
    ]


class Recorder:
    """A kernel, a flush and a device that note what is called."""

    entry_name = "main"

    def __init__(self, monkeypatch):
        self.calls = []
        flush = {"cache_flush_cpu_non_first_arg": lambda *_arguments: self.calls.append("flush")}
        monkeypatch.setattr(cold_timing, "get_global_func", flush.__getitem__)

    def __getitem__(self, _name):
        return lambda *_arguments: self.calls.append("run")

    def sync(self):
        pass


def empty(extent):
    return tvm.runtime.empty((extent,), "float32")


def test_a_long_kernel_is_called_once_a_repeat(monkeypatch):
    module = Recorder(monkeypatch)
    config = EvaluatorConfig(number=1, repeat=2, min_repeat_ms=20)
    secs = time_cold(module, module, config, [(empty(1), empty(8))])
    assert module.calls == ["flush", "run"] * 2
    assert len(secs) == 2 and all(value > 0 for value in secs)


def test_arguments_that_evict_themselves_are_not_flushed(monkeypatch):
    module = Recorder(monkeypatch)
    monkeypatch.setattr(cold_timing, "EVICTING_BYTES", 32)
    config = EvaluatorConfig(number=1, repeat=1, min_repeat_ms=20)
    time_cold(module, module, config, [(empty(100), empty(7))])
    time_cold(module, module, config, [(empty(1), empty(8), empty(1))])
    assert module.calls == ["flush", "run", "run"]
    timed = MadeUpModule([1.0] * 2)
    time_cold(timed, "cpu", config._replace(number=2), [(empty(1), empty(8))])
    assert timed.asked[0][2]["f_preproc"] == ""


def added(extent, with_mark=False):
    a, b = te.placeholder((1,), name="a"), te.placeholder((extent,), name="b")
    function = te.create_prim_func([a, b, te.compute((extent,), lambda i: a[0] + b[i])])
    marked = function.with_attr(REUSES_WEIGHTS, 1)
    return tvm.IRModule({"main": marked if with_mark else function})


def test_only_kernels_that_reuse_their_weights_are_timed_warm():
    config = EvaluatorConfig(number=2, repeat=1, min_repeat_ms=20)
    timing = InsideTiming()
    timing.set_tasks([added(8, with_mark=True), added(9)])
    again = pickle.loads(pickle.dumps(timing))
    for other, preproc in ((empty(8), ""), (empty(9), "cache_flush_cpu_non_first_arg")):
        module = MadeUpModule([1.0] * 4)
        again(module, tvm.cpu(), config, [(empty(1), other, other)])
        assert module.asked[0][2].get("f_preproc", "") == preproc
        assert module.asked[0][2]["number"] == (1 if preproc else 2)


@pytest.mark.parametrize(("extent", "calls"), [(1, MOST_CALLS), (8, 5), (100, FEWEST_CALLS)])
def test_calls_are_limited_and_large_arguments_are_flushed_fewer_times(extent, calls, monkeypatch):
    monkeypatch.setattr(cold_timing, "FLUSHED_BYTES", 160)
    module = MadeUpModule([1.0] * MOST_CALLS)
    config = EvaluatorConfig(number=1000, repeat=1, min_repeat_ms=20)
    assert time_cold(module, "cpu", config, [(empty(1), empty(extent))]) == [1.0]
    assert module.asked[0][2]["repeat"] == calls


def test_tvm_has_the_flush_and_times_a_kernel():
    tvm_ffi.get_global_func("cache_flush_cpu_non_first_arg")
    a, b = (te.placeholder((64,), name=name) for name in "ab")
    function = te.create_prim_func([a, b, te.compute((64,), lambda i: a[i] + b[i])])
    module = tvm.tirx.build(tvm.IRModule({"main": function}), target=Target("llvm"))
    arguments = [tvm.runtime.tensor(np.ones(64, "float32")) for _ in range(3)]
    config = EvaluatorConfig(number=2, repeat=2, min_repeat_ms=20)
    secs = time_cold(module, tvm.cpu(), config, [arguments])
    assert len(secs) == 2 and all(0.0 < value < 1.0 for value in secs)
    np.testing.assert_array_equal(arguments[2].numpy(), 2.0)


@pytest.fixture(autouse=True)
def _few_bytes(monkeypatch):
    monkeypatch.setattr(cold_timing, "KEPT_BYTES", 400)
    monkeypatch.setattr(cold_timing, "_kept", {})


def tensor(*shape, dtype="float32"):
    return ["TENSOR", dtype, list(shape)]


def places(sets):
    return [[np.from_dlpack(argument).ctypes.data for argument in each] for each in sets]


def test_large_ones_are_kept_and_small_ones_are_new():
    info = [tensor(3), tensor(10, 10), tensor(2, dtype="int8")]
    first = allocate_or_keep(tvm.cpu(), info, 2)
    again = allocate_or_keep(tvm.cpu(), info, 1)
    assert [[tuple(argument.shape) for argument in each] for each in first + again] == 3 * [
        [(3,), (10, 10), (2,)]
    ]
    assert [str(argument.dtype) for argument in again[0]] == ["float32", "float32", "int8"]
    small, large, bytes_ = zip(*places(first + again), strict=True)
    assert len(set(large)) == 1 and len(set(small)) == len(set(bytes_)) == 3
    values = again[0][1].numpy()
    assert np.isfinite(values).all() and values.std() > 0


def test_two_arguments_of_one_shape_are_two():
    ((first, second),) = places(allocate_or_keep(tvm.cpu(), 2 * [tensor(10, 10)], 1))
    assert first != second


def test_those_of_another_kernel_are_given_back():
    allocate_or_keep(tvm.cpu(), [tensor(10, 10), tensor(100)], 1)
    allocate_or_keep(tvm.cpu(), [tensor(10, 10)], 1)
    assert list(cold_timing._kept) == [(0, "float32", (10, 10))]
    allocate_or_keep(tvm.cpu(), [tensor(9, 10)], 1)
    assert not cold_timing._kept


@pytest.mark.parametrize("shape", [(), (0, 4), (3,), (7, 5000)], ids=str)
@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "bfloat16"])
def test_floats_are_filled_without_drawing_each(kind, shape, monkeypatch):
    """TVM's numbers are between 1 and 10, too."""
    monkeypatch.setattr(cold_timing, "default_alloc_argument", None)
    first, second = allocate_or_keep(tvm.cpu(), [tensor(*shape, dtype=kind)], 2)
    for (argument,) in (first, second):
        assert (str(argument.dtype), tuple(argument.shape)) == (kind, shape)
        values = argument.numpy().astype("float64")
        assert values.shape == shape
        assert ((values >= 1) & (values <= 10)).all()
        assert values.size < 3 or values.std() > 1
        # The end of an argument is not what the memory held.
        assert values.size < 30_000 or values[-1, -1] == values.flat[len(values.flat) - 1 - 16384]


@pytest.mark.parametrize(("device", "kind"), [("cuda", "float32"), ("cpu", "float8_e4m3fn")])
def test_tvm_fills_other_devices_and_types(device, kind, monkeypatch):
    asked = []

    def fill(where, infos, count):
        asked.append((where.type, infos, count))
        return [["filled"]]

    monkeypatch.setattr(cold_timing, "default_alloc_argument", fill)
    info = tensor(3, dtype=kind)
    assert allocate_or_keep(SimpleNamespace(type=device), [info], 1) == [["filled"]]
    assert asked == [(device, [info], 1)]

# SPDX-License-Identifier: Apache-2.0
"""Object files of kernels, packed weights and models that are built of them."""

import time
from concurrent.futures import Future

import numpy as np
import pytest

import tvm
from tvm import relax, te
from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target
from tvm_droplet_ms.measure.pool import TaskFailed
from tvm_droplet_ms.session.errors import LateKernelsError, TooLateError
from tvm_droplet_ms.session.roofline import MachineRates
from tvm_droplet_ms.tuning.compile import kernel_objects
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_ms.tuning.compile.kernel_objects import KernelObjects
from tvm_droplet_ms.tuning.compile.lowering import ModelBuilder, WeightPacker, build
from tvm_droplet_ms.tuning.model_kernels import ModelKernels
from tvm_droplet_ms.tuning.picks.first_picks import pick_schedules
from tvm_droplet_ms.tuning.picks.pick_workers import WarmStart, start_workers

TARGET = Target({"kind": "llvm", "num-cores": 1})
RATES = MachineRates(100e9, (1000,), (10e9,))


@pytest.fixture
def compiled(monkeypatch):
    """The names of the functions that are compiled."""
    names = []
    compile_object = kernel_objects.compile_object

    def spy(mod, target, path):
        names.extend(variable.name_hint for variable in mod.get_global_vars())
        compile_object(mod, target, path)

    monkeypatch.setattr(kernel_objects, "compile_object", spy)
    return names


def add(amount):
    a = te.placeholder((4,), name="a")
    return te.create_prim_func([a, te.compute((4,), lambda i: a[i] + np.float32(amount))])


def network():
    """Two dense layers of one shape with different weights."""
    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    image = relax.Var("image", relax.TensorType((32, 64), "float32"))
    weights = [rng.standard_normal((64, 64), dtype="float32") for _ in range(2)]
    with builder.function("main", [image], attrs={"num_input": 1}):
        with builder.dataflow():
            out = image
            for weight in weights:
                out = builder.emit(relax.op.nn.relu(relax.op.matmul(out, relax.const(weight))))
            out = builder.emit_output(out)
        builder.emit_func_output(out)
    return builder.get(), weights


@pytest.fixture(scope="module")
def picked():
    """The network with picks, and its weights.

    The picks are random ones, whatever the package has learned: the best for a weight of 64 columns
    may be one that does not pack it.
    """
    mod, weights = network()
    kernels = ModelKernels(mod, TARGET, MemoryDatabase())
    kernels.picks = pick_schedules(kernels.tasks, RATES, warm_start=WarmStart(None, None))
    return kernels, weights


@pytest.fixture(scope="module")
def split(picked):
    """The network after ``SplitLayoutRewritePreproc``."""
    kernels, _ = picked
    with TARGET, kernels.schedules():
        scheduled = relax.transform.MetaScheduleApplyDatabase()(kernels.lowered)
    return relax.transform.SplitLayoutRewritePreproc()(scheduled)


def expected(image, weights):
    for weight in weights:
        image = np.maximum(image @ weight, 0)
    return image


class TestKernelObjects:
    def test_compile_a_function_once(self, compiled):
        objects = KernelObjects(TARGET)
        first = objects.compile({"one": add(1), "two": add(2)})
        again = objects.compile({"one": add(1), "two": add(3)})
        assert compiled == ["one", "two", "two"]
        assert again["one"] == first["one"] != first["two"] != again["two"]

    def test_the_name_is_part_of_the_object(self, compiled):
        objects = KernelObjects(TARGET)
        objects.compile({"one": add(1)})
        objects.compile({"other": add(1)})
        assert compiled == ["one", "other"]

    def test_workers_compile_the_same_and_pass_errors_of_tvm_on(self):
        unbound = tvm.tirx.PrimFunc([], add(1).body)
        pool = start_workers()
        try:
            made = [KernelObjects(TARGET, workers) for workers in (pool, None)]
            theirs, ours = (objects.compile({"one": add(1)})["one"] for objects in made)
            assert theirs.read_bytes() == ours.read_bytes()
            for objects in made:
                with pytest.raises(Exception, match="Buffer a is used before its definition"):
                    objects.compile({"unbound": unbound})
        finally:
            pool.close()

    @pytest.mark.parametrize("kind", ["crash", "timeout"])
    def test_a_kernel_that_cannot_be_compiled_or_left_is_named(self, kind):
        with pytest.raises(RuntimeError, match="the kernel one cannot be compiled: it ended"):
            KernelObjects(TARGET, FailingPool(kind)).compile({"one": add(1)})

    def test_the_deadline_ends_the_wait_and_what_was_begun_goes_on(self):
        pool = WaitingPool()
        objects = KernelObjects(TARGET, pool)
        objects.deadline = 0.0
        functions = {"slow": add(3.0)}
        with pytest.raises(TooLateError, match="0 of 1 kernels were compiled"):
            objects.compile(functions)
        pool.futures[0].set_result(None)
        assert list(objects.compile(functions)) == ["slow"]
        assert len(pool.futures) == 1

    def test_what_is_late_is_named_and_begun_anew(self):
        pool = WaitingPool()
        objects = KernelObjects(TARGET, pool)
        functions = {"quick": add(1.0), "slow": add(3.0), "next": add(4.0)}
        objects.begin(functions)
        pool.futures[0].set_result(None)
        with pytest.raises(LateKernelsError, match="1 of 3 kernels were compiled") as raised:
            objects.compile(functions, late_at=time.monotonic())
        assert raised.value.names == ("slow", "next") and pool.drops == 1
        objects.begin(functions)
        assert len(pool.futures) == 5

    def test_what_took_too_long_behind_what_is_late_is_begun_anew_too(self):
        pool = WaitingPool()
        objects = KernelObjects(TARGET, pool)
        functions = {"slow": add(1.0), "slower": add(2.0)}
        objects.begin(functions)
        pool.futures[1].set_exception(TaskFailed("timeout", "killed after 4 s"))
        with pytest.raises(LateKernelsError) as raised:
            objects.compile(functions, late_at=time.monotonic())
        assert raised.value.names == ("slow", "slower")
        objects.begin(functions)
        for future in pool.futures[2:]:
            future.set_result(None)
        assert list(objects.compile(functions)) == ["slow", "slower"]

    @pytest.mark.parametrize("kind", ["timeout", "crash", "error"])
    def test_a_kernel_that_cannot_be_compiled_is_named_where_it_can_be_left(self, kind):
        """LLVM refuses some schedules' code: a shuffle of vectors, in one of 800 random graphs."""
        functions = {"one": add(1), "two": add(2)}
        with pytest.raises(LateKernelsError) as raised:
            KernelObjects(TARGET, FailingPool(kind)).compile(functions, time.monotonic() + 60)
        assert raised.value.names == ("one", "two")

    def test_what_was_begun_is_not_begun_again(self):
        pool = WaitingPool()
        objects = KernelObjects(TARGET, pool)
        functions = {"begun": add(4.0)}
        objects.begin(functions)
        objects.begin({"begun": functions["begun"].with_attr("global_symbol", "begun")})
        pool.futures[0].set_result(None)
        objects.compile(functions)
        assert len(pool.futures) == 1

    def test_workers_that_cannot_run_are_done_without(self):
        objects = KernelObjects(TARGET, FailingPool("machinery"))
        assert objects.compile({"one": add(1)})["one"].stat().st_size > 0


class WaitingPool:
    """Workers that never answer by themselves."""

    directory = None

    def __init__(self):
        self.futures = []
        self.drops = 0

    def drop_tasks(self):
        self.drops += 1

    def submit(self, timeout, function, *arguments):
        self.futures.append(Future())
        return self.futures[-1]


class FailingPool:
    """Workers without an answer."""

    directory = None

    def __init__(self, kind):
        self.kind = kind

    def submit(self, *_arguments):
        future = Future()
        future.set_exception(TaskFailed(self.kind, "it ended"))
        return future


class TestWeightPacker:
    def test_results_of_constants_are_numpys_and_are_packed_once(self, picked, split, monkeypatch):
        _, weights = picked
        assert any("prepack" in variable.name_hint for variable in split.get_global_vars())
        packer = WeightPacker(KernelObjects(TARGET))
        packed = packer(split)
        assert not any(v.name_hint.endswith("_prepack") for v in packed.get_global_vars())
        image = np.random.default_rng(1).standard_normal((32, 64), dtype="float32")
        machine = relax.VirtualMachine(tvm.compile(packed, TARGET), tvm.cpu())
        found = machine["main"](tvm.runtime.tensor(image)).numpy()
        np.testing.assert_allclose(found, expected(image, weights), rtol=1e-4, atol=1e-3)
        monkeypatch.setattr(packer, "_load", lambda *_: pytest.fail("packed again"))
        packer(split)

    def test_a_weight_that_two_functions_pack_has_two_layouts(self):
        weight = np.arange(6, dtype="float32").reshape(2, 3)
        a = te.placeholder((2, 3), name="a")
        packings = {
            "transpose": te.create_prim_func([a, te.compute((3, 2), lambda i, j: a[j, i])]),
            "reverse": te.create_prim_func([a, te.compute((3, 2), lambda i, j: a[1 - j, 2 - i])]),
        }
        builder = relax.BlockBuilder()
        constant = relax.const(weight)
        with builder.function("main", []):
            with builder.dataflow():
                packed = [
                    builder.emit(
                        relax.call_tir(
                            builder.add_func(function.without_attr("global_symbol"), name),
                            (constant,),
                            relax.TensorType((3, 2), "float32"),
                        )
                    )
                    for name, function in packings.items()
                ]
                out = builder.emit_output(relax.Tuple(packed))
            builder.emit_func_output(out)
        mod = WeightPacker(KernelObjects(TARGET))(builder.get())
        machine = relax.VirtualMachine(tvm.compile(mod, TARGET), tvm.cpu())
        first, second = machine["main"]()
        np.testing.assert_array_equal(first.numpy(), weight.T)
        np.testing.assert_array_equal(second.numpy(), weight[::-1, ::-1].T)


class TestModelBuilder:
    def test_gives_the_outputs_of_numpy_and_of_build(self, picked):
        kernels, weights = picked
        image = np.random.default_rng(1).standard_normal((32, 64), dtype="float32")
        (found,) = kernels.compile()([image])
        (other,) = CompiledModel(build(kernels.lowered, kernels.schedules(), TARGET))([image])
        np.testing.assert_allclose(found, expected(image, weights), rtol=1e-4, atol=1e-3)
        np.testing.assert_array_equal(found, other)

    def test_a_second_build_compiles_only_what_changed(self, picked, compiled):
        kernels, _ = picked
        builder, lowered = ModelBuilder(KernelObjects(TARGET), TARGET), kernels.lowered
        builder.build(lowered, MemoryDatabase())
        count = len(compiled)
        assert count
        builder.build(lowered, MemoryDatabase())
        assert len(compiled) == count
        builder.build(lowered, kernels.schedules())
        assert len(compiled) > count

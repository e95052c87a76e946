# SPDX-License-Identifier: Apache-2.0
"""The signature of a task, as a builder reads it from a scheduled module."""

import os
import pickle
import subprocess
import sys

import pytest
import tvm_ffi

import tvm
from tvm import te, topi
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target
from tvm_droplet_ms.measure import fast_start
from tvm_droplet_ms.measure.task_signature import (
    arguments_signature,
    read_task,
    task_signature,
    write_task,
)

LLVM = Target({"kind": "llvm", "num-cores": 2})
AVX512 = Target({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2})


def module_of(tensors):
    function = te.create_prim_func(tensors)
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def convolution():
    """A convolution with padding, and a rectifier."""
    image = te.placeholder((1, 8, 8, 16), name="image")
    weight = te.placeholder((3, 3, 16, 16), name="weight")
    convolved = topi.nn.conv2d_nhwc(image, weight, 1, 1, 1)
    return module_of([image, weight, topi.nn.relu(convolved)])


def softmax():
    a = te.placeholder((16, 32), name="a")
    return module_of([a, topi.nn.softmax(a, -1)])


def half_precision():
    a = te.placeholder((32, 32), "float16", name="a")
    b = te.placeholder((32, 32), "float16", name="b")
    return module_of([a, b, topi.nn.matmul(a, b, out_dtype="float32")])


def elementwise(operation, dtype="float32"):
    a = te.placeholder((16, 16), dtype, name="a")
    b = te.placeholder((16, 16), dtype, name="b")
    return module_of([a, b, te.compute((16, 16), lambda i, j: operation(a[i, j], b[i, j]))])


def add(a, b):
    return a + b


def multiply(a, b):
    return a * b


def candidates(mod, target, count=20):
    """Candidates of all of a task's design spaces."""
    fast_start()
    context = ms.TuneContext(
        mod,
        target=target,
        space_generator="post-order-apply",
        search_strategy=ms.search_strategy.EvolutionarySearch(
            population_size=32, init_min_unmeasured=count, genetic_num_iters=1
        ),
        rand_state=1,
        num_threads=1,
    )
    spaces = context.generate_design_space()
    context.pre_tuning(
        max_trials=count,
        num_trials_per_iter=count,
        design_spaces=spaces,
        database=ms.database.MemoryDatabase(),
        cost_model=ms.cost_model.RandomModel(seed=1),
    )
    return [candidate.sch.mod for candidate in context.generate_measure_candidates()]


@pytest.mark.parametrize(
    ("task", "target"), [(convolution, AVX512), (softmax, LLVM), (half_precision, AVX512)]
)
def test_all_candidates_of_a_task_have_its_signature(task, target):
    scheduled = candidates(task(), target)

    assert len({tvm_ffi.structural_hash(mod) for mod in scheduled}) > 10
    assert {task_signature(mod, target) for mod in scheduled} == {task_signature(task(), target)}


def test_other_operations_on_the_same_arguments_are_another_task():
    modules = [
        elementwise(add),
        elementwise(multiply),
        elementwise(te.max),
        elementwise(lambda a, b: a + te.exp(b)),
        elementwise(lambda a, b: a + te.tanh(b)),
        elementwise(lambda a, b: a + b.astype("float16").astype("float32")),
    ]

    assert len({task_signature(mod, LLVM) for mod in modules}) == len(modules)


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_every_floating_point_type_counts(dtype):
    assert task_signature(elementwise(add, dtype), LLVM) != task_signature(
        elementwise(multiply, dtype), LLVM
    )


def test_another_target_or_function_is_another_task():
    function = softmax()["main"]
    other = tvm.IRModule({"other": function.with_attr("global_symbol", "other")})
    tasks = [(softmax(), LLVM), (softmax(), AVX512), (other, LLVM)]
    assert len({task_signature(*task) for task in tasks}) == 3


def test_signature_is_same_in_every_process(tmp_path):
    mod = convolution()
    path = tmp_path / "task.pickle"
    path.write_bytes(pickle.dumps((mod, LLVM)))
    code = (
        "import pickle, sys; from tvm_droplet_ms.measure.task_signature import task_signature; "
        "print(task_signature(*pickle.load(open(sys.argv[1], 'rb'))))"
    )

    names = [
        subprocess.run(
            [sys.executable, "-c", code, str(path)],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout.split()[-1]
        for seed in ("1", "2")
    ]

    assert names == [task_signature(mod, LLVM)] * 2


def test_signature_is_stored_beside_artifact(tmp_path):
    assert read_task(str(tmp_path)) == ""

    write_task(str(tmp_path), "name")

    assert read_task(str(tmp_path)) == "name"


def packed_arguments(seed: int):
    """The arguments of a sampled dense layer whose weights the schedule packs."""
    a = te.placeholder((16, 64), name="a")
    weights = te.placeholder((64, 32), name="weights")
    function = te.create_prim_func([a, weights, topi.nn.matmul(a, weights)])
    mod = tvm.IRModule({"main": function.with_attr("layout_free_buffers", [1])})
    context = ms.TuneContext(
        mod, target=LLVM, space_generator="post-order-apply", rand_state=seed, num_threads=1
    )
    schedule = context.generate_design_space()[0]
    sampled = tvm.s_tir.Schedule(context.mod, seed=seed)
    tvm.s_tir.Trace(schedule.trace.insts, {}).apply_to_schedule(sampled, remove_postproc=True)
    sampled.enter_postproc()
    assert all(postproc.apply(sampled) for postproc in context.space_generator.postprocs)
    infos = ms.arg_info.ArgInfo.from_entry_func(sampled.mod, remove_preproc=True)
    return [info.as_json() for info in infos]


def test_packed_weights_have_another_shape_and_the_same_signature():
    fast_start()
    sampled = [packed_arguments(seed) for seed in range(1, 7)]
    assert len({str(arguments) for arguments in sampled}) > 1
    assert len({arguments_signature(arguments) for arguments in sampled}) == 1


def test_arguments_of_another_size_type_or_output_differ():
    arguments = [["TENSOR", "float32", [2, 6]], ["TENSOR", "float32", [4, 4]]]
    others = [
        [["TENSOR", "float32", [2, 7]], ["TENSOR", "float32", [4, 4]]],
        [["TENSOR", "int32", [2, 6]], ["TENSOR", "float32", [4, 4]]],
        [["TENSOR", "float32", [2, 6]], ["TENSOR", "float32", [2, 8]]],
        [["TENSOR", "float32", [2, 6]]],
    ]
    assert arguments_signature(arguments) not in map(arguments_signature, others)

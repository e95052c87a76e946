# SPDX-License-Identifier: Apache-2.0
"""Kernels as they are timed: with their weights in the caches, or from the memory."""

import pytest
from small_models import Weights, module
from stub_bench import BOUND
from tvm_ffi import structural_hash

from tvm import relax
from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target
from tvm_droplet_ms.model.kernels.weights.weight_marks import REUSES_WEIGHTS
from tvm_droplet_ms.tuning.compile.lowering import lower
from tvm_droplet_ms.tuning.model_kernels import ModelKernels
from tvm_droplet_papers.graph.extraction.problem import problem_of
from tvm_droplet_papers.graph.optimizer import prepared_for_import
from tvm_droplet_papers.graph.pricing import kernels
from tvm_droplet_papers.graph.pricing.kernel_module import kernel_module, workloads_of
from tvm_droplet_papers.graph.pricing.kernels import kernel_of
from tvm_droplet_papers.graph.relax.importer import import_function
from tvm_droplet_papers.graph.rules import ALL_RULES
from tvm_droplet_papers.graph.rules.rule import saturate

TARGET = Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1})


def chain(*weights):
    """A state of 8 values that is multiplied by one weight after the other."""

    def body(emit, state):
        for weight in weights:
            state = emit(relax.op.tanh(emit(relax.op.matmul(state, weight))))
        return state

    return module([(1, 8)], body)


def rows(count):
    """Rows of a matrix, each multiplied by the same weight: one product makes them all."""
    weight = Weights()(8, 8)

    def body(emit, x):
        products = []
        for row in range(count):
            part = emit(relax.op.strided_slice(x, axes=[0], begin=[row], end=[row + 1]))
            products.append(emit(relax.op.tanh(emit(relax.op.matmul(part, weight)))))
        return tuple(products)

    return module([(count, 8)], body)


def products(mod, saturated=False):
    """The kernels of all products, each once."""
    imported = import_function(prepared_for_import(mod)["main"])
    imported.graph.rebuild()
    if saturated:
        imported.graph.limit = 300
        saturate(imported.graph, ALL_RULES)
    choices = problem_of(imported.graph, imported.roots, BOUND).choices
    found = [kernel_of(imported.graph, each.place[0], each.what) for each in choices]
    return set(kernel for kernel in found if kernel and kernel.operator.name == "matmul")


def test_the_calls_of_a_shared_weight_are_counted_once(monkeypatch):
    """For each of a thousand products that share it, the other 999 were looked at."""
    looked_at = []

    def counted(graph, node):
        looked_at.append(node)
        return call_of(graph, node)

    call_of = kernels._call_of
    monkeypatch.setattr(kernels, "_call_of", counted)
    (kernel,) = products(chain(*[Weights()(8, 8)] * 60))
    assert kernel.is_warm and len(looked_at) == 60 + 60


def test_a_weight_of_three_steps_is_cached():
    weight = Weights()(8, 8)
    for count, is_warm in [(2, False), (3, True), (5, True)]:
        (kernel,) = products(chain(*[weight] * count))
        assert kernel.is_warm == is_warm


def test_weights_of_their_own_are_not_cached():
    w = Weights()
    (kernel,) = products(chain(*[w(8, 8) for _ in range(5)]))
    assert not kernel.is_warm


def test_weights_that_do_not_fit_the_caches_together_are_not_cached(monkeypatch):
    w = Weights()
    shared, other = w(8, 8), w(8, 16)
    mod = chain(shared, shared, shared, other)
    monkeypatch.setattr(kernels, "CACHE_BYTES", 4 * (8 * 8 + 8 * 16))
    assert {kernel.operands[1].shape: kernel.is_warm for kernel in products(mod)} == {
        (8, 8): True,
        (8, 16): False,
    }
    monkeypatch.setattr(kernels, "CACHE_BYTES", 4 * (8 * 8 + 8 * 16) - 1)
    assert not any(kernel.is_warm for kernel in products(mod))


def test_one_product_of_all_rows_reads_its_weight_once():
    found = {kernel.operands[0].shape: kernel.is_warm for kernel in products(rows(4), True)}
    assert found[1, 8] and not found[4, 8]


@pytest.mark.parametrize("count", [1, 5])
def test_the_kernel_alone_is_that_of_the_model(count):
    """A kernel with cached weights is marked as the steps of the model are, by the same rule."""
    weight = Weights()(8, 8)
    mod = chain(*[weight] * count)
    (kernel,) = products(mod)
    (workloads,) = workloads_of(lower(kernel_module([kernel]), TARGET), 1)
    assert len(workloads) == kernel.calls == (1 if count == 1 else 3)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            state = x
            for _ in range(count):
                state = builder.emit(relax.op.matmul(state, weight))
            result = builder.emit_output(state)
        builder.emit_func_output(result)
    (task,) = ModelKernels(builder.get(), TARGET, MemoryDatabase()).tasks
    assert set(workloads) == {structural_hash(task.dispatched[0])}
    (function,) = [each for _, each in task.dispatched[0].functions_items()]
    assert (REUSES_WEIGHTS in function.attrs) == (count == 5)

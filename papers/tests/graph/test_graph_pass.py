# SPDX-License-Identifier: Apache-2.0
"""The search as a Relax pass, and in the tuning pipeline."""

import pytest
import small_models
import stub_bench
import tvm_ffi
from stub_bench import StubBench, operators, price_of_size, whole_block

import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_papers.graph import OptimizeGraph, optimizer
from tvm_droplet_papers.graph.pricing import workbench

TARGET = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1}


@pytest.fixture
def bench(monkeypatch):
    """A bench on which one convolution is faster than three branches."""
    stub = StubBench(price_of_size, whole_block(2e-3, 1e-3))
    monkeypatch.setattr(optimizer, "measure_machine", lambda threads=1: stub_bench.RATES)
    monkeypatch.setattr(workbench, "Workbench", stub.make)
    return stub


def named(mod, name):
    """The module with its function ``main`` under another name."""
    changed = tvm.IRModule()
    changed[name] = mod["main"].with_attr("global_symbol", name)
    return changed


def test_the_pass_replaces_the_graph(bench, tmp_path):
    before = small_models.repvgg_block()
    after = tvm.transform.Sequential([OptimizeGraph(TARGET, tmp_path)])(before)
    assert operators(after)["conv2d"] == 1 and bench.ran
    assert operators(before)["conv2d"] == 2


def test_the_only_function_may_have_another_name(bench, tmp_path):
    before = named(small_models.repvgg_block(), "forward")
    after = OptimizeGraph(TARGET, tmp_path)(before)
    relax.analysis.well_formed(after)
    assert [name.name_hint for name in after.get_global_vars()] == ["forward"]
    assert dict(after["forward"].attrs)["global_symbol"] == "forward"
    assert operators({"main": after["forward"]})["conv2d"] == 1


def test_without_a_directory_nothing_is_run(bench):
    after = OptimizeGraph(TARGET)(small_models.repvgg_block())
    assert operators(after)["conv2d"] == 1 and not bench.asked and not bench.ran


@pytest.fixture
def tuned(monkeypatch):
    """The modules that the pipeline tunes; nothing is measured."""
    seen = []
    monkeypatch.setattr(ms.relax_integration, "tune_relax", lambda mod, *_, **__: seen.append(mod))
    return seen


def convolutions(mod):
    """Kernels of a lowered module with a convolution in them."""
    return sum("conv2d" in name.name_hint for name in mod.get_global_vars())


@pytest.mark.parametrize(("option", "count"), [({}, 2), ({"optimize_graph": True}, 1)])
def test_the_pipeline_optimizes_only_where_it_is_asked_to(bench, tuned, option, count, tmp_path):
    pipeline = relax.get_pipeline(
        "droplet_tuning", total_trials=8, target=TARGET, work_dir=str(tmp_path), **option
    )
    pipeline(small_models.repvgg_block())
    assert [convolutions(mod) for mod in tuned] == [count]
    assert bool(bench.asked) == bool(option)


def test_the_pipeline_optimizes_for_cpus_only():
    with pytest.raises(ValueError, match="optimize_graph=True with a target of the kind 'cuda'"):
        relax.get_pipeline(
            "droplet_tuning", total_trials=8, target="cuda", work_dir="none", optimize_graph=True
        )


def test_without_gain_the_pass_returns_the_module(bench, tmp_path):
    bench.whole = lambda mod: 1e-3
    before = small_models.repvgg_block()
    assert tvm_ffi.structural_equal(OptimizeGraph(TARGET, tmp_path)(before), before)

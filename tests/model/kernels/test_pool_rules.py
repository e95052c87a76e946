# SPDX-License-Identifier: Apache-2.0
"""Tests of the design spaces of pools."""

import kernel_chain
import numpy as np
import pytest
import tvm_ffi
from graphs import build

import tvm
from tvm import relax, te, topi
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm_droplet_ms.model.kernels.channel_vectors import (
    RULE_NAMES,
    register_pool_rules,
    vector_extents,
)


@pytest.fixture(autouse=True, scope="module")
def rules():
    register_pool_rules()
    yield
    for name in RULE_NAMES:
        for key in ("cpu", "gpu"):
            tvm_ffi.registry.remove_global_func(f"s_tir.meta_schedule.{key}.meta_schedule.{name}")


def pool_module(shape, layout, kind="max", relu=False, **attributes):
    """A Relax module of one pool."""
    pools = {"max": relax.op.nn.max_pool2d, "avg": relax.op.nn.avg_pool2d}

    def body(emit, x):
        if kind == "global":
            pool = emit(relax.op.nn.adaptive_avg_pool2d(x, (1, 1), layout))
        else:
            pool = emit(pools[kind](x, layout=layout, **attributes))
        return emit(relax.op.nn.relu(pool)) if relu else pool

    return build(shape, body)


def pooled(x, kind, *, pool_size, strides, padding, count_include_pad=False):
    """The result of an NHWC pool in NumPy."""
    fill = -np.inf if kind == "max" else 0.0
    widths = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    x, inside = np.pad(x, widths, constant_values=fill), np.pad(np.ones_like(x), widths)
    size = (x.shape[1] - pool_size) // strides + 1
    out = np.zeros((x.shape[0], size, size, x.shape[3]))
    for i in range(size):
        for j in range(size):
            rows = slice(i * strides, i * strides + pool_size)
            at = (slice(None), rows, slice(j * strides, j * strides + pool_size))
            if kind == "max":
                out[:, i, j] = x[at].max(axis=(1, 2))
            else:
                count = pool_size**2 if count_include_pad else inside[at].sum(axis=(1, 2))
                out[:, i, j] = x[at].sum(axis=(1, 2)) / count
    return out


SHAPE = (1, 9, 9, 16)
POOLS = {
    "max, padded": ("max", dict(pool_size=3, strides=2, padding=1)),
    "max": ("max", dict(pool_size=2, strides=2, padding=0)),
    "average, padded": ("avg", dict(pool_size=3, strides=1, padding=1)),
    "average, padding counts": (
        "avg",
        dict(pool_size=3, strides=1, padding=1, count_include_pad=True),
    ),
}


def relax_attributes(attributes):
    return {
        name: (value, value) if isinstance(value, int) and name != "count_include_pad" else value
        for name, value in attributes.items()
    }


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("name", POOLS)
def test_a_scheduled_pool_computes_what_numpy_does(name, layout, capfd):
    kind, attributes = POOLS[name]
    x = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")
    given = x if layout == "NHWC" else x.transpose(0, 3, 1, 2).copy()
    mod = pool_module(given.shape, layout, kind, **relax_attributes(attributes))
    run = kernel_chain.run_tuned(mod, [given])
    (output,) = run.outputs
    expected = pooled(x, kind, **attributes)
    if layout == "NCHW":
        expected = expected.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)
    assert kernel_chain.unscheduled(run.compiled) == []
    assert "Unknown schedule rule" not in capfd.readouterr().err


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("relu", [False, True])
def test_a_scheduled_global_pool_computes_what_numpy_does(layout, relu, capfd):
    x = np.random.default_rng(1).standard_normal((1, 7, 7, 24)).astype("float32")
    given, axes = (x, (1, 2)) if layout == "NHWC" else (x.transpose(0, 3, 1, 2).copy(), (2, 3))
    run = kernel_chain.run_tuned(pool_module(given.shape, layout, "global", relu), [given])
    expected = given.mean(axis=axes, keepdims=True)
    np.testing.assert_allclose(
        run.outputs[0], np.maximum(expected, 0) if relu else expected, rtol=1e-5, atol=1e-6
    )
    assert len(run.kernels) == 1
    assert "Unknown schedule rule" not in capfd.readouterr().err


def pool_kernel(layout, shape=SHAPE, pool_type="max", kernel=(3, 3), relu=False):
    """The TIR module of one pool."""
    x = te.placeholder(shape, "float32", name="x")
    pool = topi.nn.pool2d(x, kernel, (2, 2), (1, 1), (1, 1, 1, 1), pool_type, layout=layout)
    out = topi.nn.relu(pool) if relu else pool
    return IRModule({"main": te.create_prim_func([x, out]).with_attr("global_symbol", "main")})


def innermost_loop(schedule: Schedule, name: str):
    return schedule.get(schedule.get_loops(schedule.get_sblock(name))[-1])


@pytest.mark.parametrize(
    "pool_type, block", [("max", "pool_max_update"), ("avg", "pool_sum_update")]
)
def test_an_nhwc_pool_is_vectorized_over_channels_and_reads_its_padding_in_place(pool_type, block):
    mod = pool_kernel("NHWC", pool_type=pool_type)
    _, spaces = kernel_chain.design_space(mod)
    assert len(spaces) == 1
    schedule = kernel_chain.draw_schedule(mod)
    loop = innermost_loop(schedule, block)
    assert loop.kind == tvm.tirx.ForKind.VECTORIZED
    assert int(loop.extent) in (8, 16)
    assert "pad_temp" not in schedule.mod.script()


def test_the_vector_of_channels_is_a_decision():
    mod = pool_kernel("NHWC", shape=(1, 9, 9, 64))
    extents = {
        int(innermost_loop(kernel_chain.draw_schedule(mod, seed), "pool_max_update").extent)
        for seed in range(1, 17)
    }
    assert extents == {8, 16, 32, 64}


def test_an_average_pools_consumer_takes_up_the_division():
    schedule = kernel_chain.draw_schedule(pool_kernel("NHWC", pool_type="avg", relu=True))
    blocks = [name for name in ("pool_sum_update", "pool_avg", "compute") if has(schedule, name)]
    assert blocks == ["pool_sum_update", "compute"]
    assert innermost_loop(schedule, "pool_sum_update").kind == tvm.tirx.ForKind.VECTORIZED


def has(schedule: Schedule, name: str) -> bool:
    return f'T.sblock("{name}")' in schedule.mod.script()


def test_an_nchw_pool_keeps_the_design_spaces_that_tvm_gives_without_the_rule():
    mod = pool_kernel("NCHW", shape=(1, 16, 9, 9))
    block = '"schedule_rule": "meta_schedule.pool_max"'
    assert block in mod.script()
    with_rule = kernel_chain.design_space(mod)[1]
    schedule = Schedule(mod)
    schedule.unannotate(schedule.get_sblock("pool_max"), "schedule_rule")
    without = kernel_chain.design_space(schedule.mod)[1]
    assert len(with_rule) == len(without) > 1
    kinds = [[inst.kind.name for inst in space.trace.insts] for space in with_rule]
    expected = [[inst.kind.name for inst in space.trace.insts] for space in without]
    assert [[kind for kind in row if kind != "Unannotate"] for row in kinds] == expected


def test_registering_again_keeps_what_is_registered():
    name = "s_tir.meta_schedule.cpu.meta_schedule.pool_max"
    before = tvm_ffi.get_global_func(name)
    register_pool_rules()
    assert tvm_ffi.get_global_func(name).same_as(before)


def test_another_packages_rule_is_left_registered():
    name = "s_tir.meta_schedule.cpu.meta_schedule.pool_max"
    tvm_ffi.register_global_func(name, lambda schedule, block: ["theirs"], override=True)
    try:
        register_pool_rules()
        assert list(tvm_ffi.get_global_func(name)(None, None)) == ["theirs"]
    finally:
        tvm_ffi.registry.remove_global_func(name)
        register_pool_rules()


@pytest.mark.parametrize(
    "channels, extents",
    [
        (64, [8, 16, 32, 64]),
        (24, [8]),
        (58, [1, 2, 29, 58]),
        (3, [1, 3]),
        (1, [1]),
        (67, [1]),
        (192, [8, 16, 32, 64]),
    ],
)
def test_vector_extents(channels, extents):
    assert vector_extents(channels) == extents

# SPDX-License-Identifier: Apache-2.0
"""Kernels that the rule schedules compute what NumPy does."""

import random

import numpy as np
import pytest
from byte_kernels import (
    batch_matmul,
    convolution,
    convolved,
    dense,
    packed_dense,
    requantized,
    sum_of,
    values,
    without_tiles,
)

import tvm
from tvm import te, topi
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock
from tvm.script import tirx as T
from tvm.target import Target
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.design_space.dot_products.dot_intrinsics import SMALL_WEIGHTS
from tvm_droplet_ms.design_space.dot_products.dot_rule import tile_lengths
from tvm_droplet_ms.design_space.dot_products.find_dot import dot_unit, half_unit
from tvm_droplet_ms.design_space.sound_space import FROM_TARGET, sound_space
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.model.kernels.halves import half_matmul
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer
from tvm_droplet_ms.search_strategy.design_spaces import EncodedSpaces
from tvm_droplet_ms.session.database import open_database
from tvm_droplet_ms.tuning.kernel.kernel_run import module_of

HOST = Target({**without_tiles(host_target()).export(), "num-cores": 1})
TWO = Target({**HOST.export(), "num-cores": 2})
PLAIN = Target({"kind": "llvm", "mcpu": "haswell", "num-cores": 1})
INSTRUCTIONS = ("pmadd", "vpdpbusd", "dot_bf16")
HAS_DOTS = dot_unit(HOST) is not None
HALVES = ("bfloat16", "bfloat16")
pytestmark = pytest.mark.skipif(not HAS_DOTS, reason="this CPU has no AVX2")
needs_halves = pytest.mark.skipif(half_unit(HOST) is None, reason="this CPU has no AVX512_BF16")


def scheduled(module, target=HOST, seed=1):
    """A random schedule of each design space, as a search would measure it."""
    with fast_tune_contexts():
        space = sound_space(FROM_TARGET, module, target)
        context = TuneContext(module, target=target, space_generator=space, rand_state=seed)
        spaces = context.generate_design_space()
    postprocs = context.space_generator.postprocs
    replayer = ScreenedReplayer(module, postprocs, random.Random(seed))
    candidates = [replayer.replay(space.trace) for space in spaces]
    found = [each.schedule.mod for each in candidates if each is not None]
    assert found and all(any(name in str(mod) for name in INSTRUCTIONS) for mod in found)
    return found


def run(module, arrays, target=HOST):
    function = module["main"]
    out = function.params[len(arrays)]
    result = tvm.runtime.empty([int(n) for n in out.shape], str(out.dtype))
    tvm.tirx.build(module, target=target)["main"](*map(tvm.runtime.tensor, arrays), result)
    return result.numpy()


def check(module, shapes, types, expected, target=HOST):
    generator = np.random.default_rng(0)
    arrays = [values(generator, *each) for each in zip(shapes, types, strict=True)]
    for found in scheduled(module, target)[:2]:
        np.testing.assert_array_equal(run(found, arrays, target), expected(*arrays))


def product(a, w):
    return a.astype("int64") @ w.astype("int64")


@pytest.mark.parametrize("target", [HOST, TWO, PLAIN], ids=["host", "two threads", "avx2"])
@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "int8")], ids=["u8s8", "s8s8"])
def test_dense(target, types):
    module = dense(48, 64, 64, types)
    check(module, [(48, 64), (64, 64)], types, lambda a, w: product(a, w.T), target)


@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "uint8")], ids=["u8s8", "s8u8"])
def test_without_vnni_what_lanes_share_is_stored_in_words(types):
    """So that the loop over the products does not widen it; a record of such a schedule replays."""
    shapes = [(48, 64), (64, 32)]
    a, w = (te.placeholder(*each, name) for *each, name in zip(shapes, types, "aw", strict=True))
    k = te.reduce_axis((0, 64), "k")
    c = te.compute((48, 32), lambda i, j: sum_of(a[i, k], w[k, j], k), "c")
    module = module_of(te.create_prim_func([a, w, c]))
    check(module, shapes, types, product, PLAIN)
    for found in scheduled(module, PLAIN):
        assert 'T.sblock_alloc_buffer((48, 64), "int16")' in str(found)


@pytest.mark.parametrize("columns", [64, 24])
def test_weights_of_seven_bits_are_multiplied_as_bytes(columns):
    """Exact where all pairs of products are as large as they can be."""
    module = dense(48, columns, 64)
    module["main"] = module["main"].with_attr(SMALL_WEIGHTS, [1])
    found = scheduled(module, PLAIN)
    assert all("pmadd.ub.sw" in str(mod) for mod in found)
    a = values(np.random.default_rng(0), (48, 64), "uint8")
    w = np.random.default_rng(1).choice([-64, -64, 64, 64, 3], (columns, 64)).astype("int8")
    a[0], w[0], w[1] = 255, 64, -64
    for mod in found:
        np.testing.assert_array_equal(run(mod, [a, w], PLAIN), product(a, w.T))


def test_other_weights_and_signed_bytes_are_multiplied_as_words():
    module = dense(48, 64, 64)
    assert not any("pmadd.ub.sw" in str(mod) for mod in scheduled(module, PLAIN))
    signed = dense(48, 64, 64, ("int8", "int8"))
    signed["main"] = signed["main"].with_attr(SMALL_WEIGHTS, [1])
    assert not any("pmadd.ub.sw" in str(mod) for mod in scheduled(signed, PLAIN))


def test_a_database_keeps_the_point(tmp_path):
    """A search that goes on knows what was measured of constant weights, which are packed once."""
    module = dense(48, 64, 64, free=True)
    with fast_tune_contexts():
        space = sound_space(FROM_TARGET, module, PLAIN)
        context = TuneContext(module, target=PLAIN, space_generator=space, rand_state=1)
        traces = [schedule.trace for schedule in context.generate_design_space()]
    spaces = EncodedSpaces(traces)
    replayer = ScreenedReplayer(module, context.space_generator.postprocs, random.Random(1))
    found = [replayer.replay(trace).trace for trace in traces]
    database = open_database(tmp_path)
    workload = database.commit_workload(module)
    for trace in found:
        database.commit_tuning_record(TuningRecord(trace, workload, [1.0], PLAIN))
    records = open_database(tmp_path).get_all_tuning_records()
    for trace, record in zip(found, records, strict=True):
        assert spaces.find(record.trace) == spaces.find(trace) is not None


def test_what_follows_reads_the_bytes_that_were_widened():
    """A residual: with the copy for both there was no design space."""
    a, w = te.placeholder((32, 64), "uint8", "a"), te.placeholder((64, 64), "int8", "w")
    k = te.reduce_axis((0, 64), "k")
    c = te.compute((32, 64), lambda i, j: sum_of(a[i, k], w[k, j], k), "c")
    after = te.compute((32, 64), lambda i, j: c[i, j] + a[i, j].astype("int32"), "after")
    module = module_of(te.create_prim_func([a, w, after]))
    shapes = [(32, 64), (64, 64)]
    check(module, shapes, ("uint8", "int8"), lambda a, w: product(a, w) + a, PLAIN)


def test_two_products_of_the_same_bytes_are_both_widened():
    a, w = te.placeholder((32, 64), "uint8", "a"), te.placeholder((64, 64), "int8", "w")
    v = te.placeholder((64, 64), "int8", "v")
    ks = [te.reduce_axis((0, 64), name) for name in "kr"]
    c, d = (
        te.compute((32, 64), lambda i, j: sum_of(a[i, k], each[k, j], k), name)
        for k, each, name in zip(ks, (w, v), "cd", strict=True)
    )
    total = te.compute((32, 64), lambda i, j: c[i, j] + d[i, j], "total")
    module = module_of(te.create_prim_func([a, w, v, total]))
    shapes, types = [(32, 64), (64, 64), (64, 64)], ("uint8", "int8", "int8")
    check(module, shapes, types, lambda a, w, v: product(a, w) + product(a, v), PLAIN)
    for found in scheduled(module, PLAIN):
        assert str(found).count('T.sblock_alloc_buffer((32, 64), "int16")') == 2


def test_what_reads_another_sum_is_computed_behind_the_product():
    """As a correction of a zero point by the sums of rows: there was no design space."""
    a, w = te.placeholder((32, 64), "uint8", "a"), te.placeholder((64, 32), "int8", "w")
    k, r = (te.reduce_axis((0, 64), name) for name in "kr")
    c = te.compute((32, 32), lambda i, j: sum_of(a[i, k], w[k, j], k), "c")
    rows = te.compute((32,), lambda i: te.sum(a[i, r].astype("int32"), r), "rows")
    after = te.compute((32, 32), lambda i, j: c[i, j] - 3 * rows[i], "after")
    module = module_of(te.create_prim_func([a, w, after]))

    def expected(a, w):
        return product(a, w) - 3 * a.astype("int64").sum(axis=1, keepdims=True)

    check(module, [(32, 64), (64, 32)], ("uint8", "int8"), expected)


@T.prim_func(s_tir=True)
def joined(
    a: T.Buffer((16, 64), "uint8"),
    b: T.Buffer((16, 64), "uint8"),
    w: T.Buffer((64, 32), "int8"),
    d: T.Buffer((32, 32), "int32"),
):
    c = T.sblock_alloc_buffer((32, 64), "uint8")
    for i, j in T.grid(16, 64):
        with T.sblock("upper"):
            vi, vj = T.axis.remap("SS", [i, j])
            c[vi, vj] = a[vi, vj]
    for i, j in T.grid(16, 64):
        with T.sblock("lower"):
            vi, vj = T.axis.remap("SS", [i, j])
            c[vi + 16, vj] = b[vi, vj]
    for i, j, k in T.grid(32, 32, 64):
        with T.sblock("d"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                d[vi, vj] = 0
            d[vi, vj] = d[vi, vj] + T.Cast("int32", c[vi, vk]) * T.Cast("int32", w[vk, vj])


def test_bytes_that_two_blocks_write_are_not_widened():
    """TVM copies no buffer that two blocks write."""
    shapes = [(16, 64), (16, 64), (64, 32)]

    def expected(a, b, w):
        return product(np.vstack([a, b]), w)

    check(module_of(joined), shapes, ("uint8", "uint8", "int8"), expected, PLAIN)


def test_batch_matmul():
    shapes = [(2, 32, 32), (2, 32, 16)]
    check(batch_matmul(2, 32, 16, 32), shapes, ("uint8", "int8"), product)


@pytest.mark.parametrize(
    ("groups", "stride", "target"), [(1, 1, HOST), (2, 2, HOST), (1, 1, PLAIN)]
)
def test_convolution(groups, stride, target):
    module = convolution(14, 32, 32, groups, stride)
    shapes = [(1, 14, 14, 32), (3, 3, 32 // groups, 32)]
    check(module, shapes, ("uint8", "int8"), lambda a, w: convolved(a, w, groups, stride), target)


@needs_halves
@pytest.mark.parametrize("target", [HOST, TWO], ids=["host", "two threads"])
def test_dense_of_halves(target):
    """Also of 19 rows, and of columns that vectors of 16 lanes do not divide."""
    for rows, columns in ((48, 64), (19, 24)):
        module = dense(rows, columns, 64, HALVES)
        shapes = [(rows, 64), (columns, 64)]
        check(module, shapes, HALVES, lambda a, w: product(a, w.T), target)


@needs_halves
@pytest.mark.parametrize(("groups", "stride"), [(1, 1), (2, 2)])
def test_convolution_of_halves(groups, stride):
    """The padded image and the packed weights stay halves inside of the kernel."""
    module = convolution(14, 32, 32, groups, stride, HALVES)
    shapes = [(1, 14, 14, 32), (3, 3, 32 // groups, 32)]
    check(module, shapes, HALVES, lambda a, w: convolved(a, w, groups, stride))


def of_first_rows(after):
    """A product of 19 rows, computed as 20, and what follows it."""
    a, w = te.placeholder((19, 64), HALVES[0], "a"), te.placeholder((64, 48), HALVES[1], "w")
    return module_of(te.create_prim_func([a, w, after(half_matmul(a, w))]))


def is_computed_for_a_tile(module, name):
    """True if a block is inside of the loops over tiles: then it has a loop of the product's."""
    schedule = Schedule(module)
    blocks = [name for name in (name, f"{name}_o") if name in str(module)]
    block = schedule.get_sblock(blocks[0])
    outermost = schedule.get(schedule.get_loops(block)[0])
    return "dot_bf16" in str(outermost)


@needs_halves
def test_rows_that_no_tile_divides():
    module = of_first_rows(topi.nn.relu)
    check(module, [(19, 64), (64, 48)], HALVES, lambda a, w: np.maximum(product(a, w), 0))
    assert all(is_computed_for_a_tile(found, "compute") for found in scheduled(module))


@needs_halves
def test_what_reads_two_rows_is_computed_behind_the_product():
    def pairs(c):
        return te.compute((18, 48), lambda i, j: c[i, j] + c[i + 1, j], name="pairs")

    def expected(a, w):
        found = product(a, w)
        return found[:-1] + found[1:]

    module = of_first_rows(pairs)
    check(module, [(19, 64), (64, 48)], HALVES, expected)
    assert not any(is_computed_for_a_tile(found, "pairs") for found in scheduled(module))


@pytest.mark.parametrize("types", [("uint8", "int8"), pytest.param(HALVES, marks=needs_halves)])
@pytest.mark.parametrize("other", ["turned", "transposed"])
def test_what_reads_another_place_of_the_same_extents_is_computed_behind_the_product(types, other):
    """Such tiles gave wrong numbers: the place that is read belongs to another tile."""
    a, w = te.placeholder((32, 64), types[0], "a"), te.placeholder((64, 32), types[1], "w")
    k = te.reduce_axis((0, 64), "k")
    c = te.compute((32, 32), lambda i, j: sum_of(a[i, k], w[k, j], k), "c")
    places = {"turned": lambda i, j: c[(i + 1) % 32, j], "transposed": lambda i, j: c[j, i]}
    module = module_of(te.create_prim_func([a, w, te.compute((32, 32), places[other], "after")]))

    def expected(a, w):
        found = product(a, w)
        return np.roll(found, -1, axis=0) if other == "turned" else found.T

    check(module, [(32, 64), (64, 32)], types, expected)


def test_what_follows_is_computed_for_each_tile():
    generator = np.random.default_rng(0)
    a, w = (values(generator, (32, 64), "uint8"), values(generator, (64, 64), "int8"))
    bias = generator.integers(-(1 << 14), 1 << 14, 64).astype("int32")
    expected = np.clip(np.round((product(a, w.T) + bias) / 128), 0, 255).astype("uint8")
    for found in scheduled(requantized(32, 64, 64)):
        np.testing.assert_array_equal(run(found, [a, w, bias]), expected)


def test_packed_weights_are_read_as_they_are():
    unit = dot_unit(HOST)
    lanes, depth = unit.lanes[0], unit.depth

    def where(j, k):
        return j // lanes, k // depth, j % lanes, k % depth

    module = packed_dense(32, 64, 32, (64 // lanes, 32 // depth, lanes, depth), where)
    generator = np.random.default_rng(0)
    a, w = (values(generator, (32, 32), "uint8"), values(generator, (64, 32), "int8"))
    packed = w.reshape(64 // lanes, lanes, 32 // depth, depth).transpose(0, 2, 1, 3)
    for found in scheduled(module):
        assert "w_global" not in str(found)
        out = run(found, [a, np.ascontiguousarray(packed)])
        np.testing.assert_array_equal(out, product(a, w.T))


def test_constant_weights_are_packed_once():
    """The copy is marked as TVM marks those of ``RewriteLayout``, and is left out of the kernel."""
    unit = dot_unit(HOST)
    lanes, depth = unit.lanes[0], unit.depth
    generator = np.random.default_rng(0)
    a, w = (values(generator, (8, 32), "uint8"), values(generator, (64, 32), "int8"))
    packed = w.reshape(64 // lanes, lanes, 32 // depth, depth).transpose(0, 2, 1, 3)
    found = scheduled(dense(8, 64, 32, free=True))[0]
    kernel = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(found)
    assert [int(n) for n in kernel["main"].params[1].shape] == list(packed.shape)
    out = run(kernel, [a, np.ascontiguousarray(packed)])
    np.testing.assert_array_equal(out, product(a, w.T))


def test_weights_that_are_used_few_times_are_not_packed_in_each_run():
    with fast_tune_contexts():
        module = dense(4, 64, 64)
        space = sound_space(FROM_TARGET, module, HOST)
        context = TuneContext(module, target=HOST, space_generator=space, rand_state=1)
        assert not any("tensorize" in str(s.trace) for s in context.generate_design_space())


def test_lengths_of_tiles():
    for rows, vectors, registers in [(512, 32, 28), (7, 4, 28), (1, 64, 28), (13, 3, 12)]:
        lengths = tile_lengths(rows, vectors, registers)
        assert lengths and all(vectors % n == 0 and n <= registers for n in lengths)
    assert tile_lengths(512, 32, 28)[0] == 4
    assert tile_lengths(1, 64, 28)[0] == 16  # No rows to share a load: the more vectors the better.


def test_a_replayed_trace_is_the_same_kernel():
    """Records are replayed by another process, which has registered the intrinsics too."""
    module = dense(48, 64, 64)
    with fast_tune_contexts():
        space = sound_space(FROM_TARGET, module, HOST)
        context = TuneContext(module, target=HOST, space_generator=space, rand_state=1)
        first = context.generate_design_space()[0]
    again = Schedule(module)
    tvm.s_tir.Trace.apply_json_to_schedule(first.trace.as_json(), again)
    tvm.ir.assert_structural_equal(first.mod, again.mod)

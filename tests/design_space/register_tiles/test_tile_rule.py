# SPDX-License-Identifier: Apache-2.0
"""Kernels that the rule schedules compute what NumPy does, and their tiles need not divide."""

import random

import numpy as np
import pytest

import tvm
from tvm import te, topi
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock
from tvm.script import tirx as T
from tvm.target import Target
from tvm.target.codegen import target_has_features
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.design_space.screening.soundness import repeated_sum
from tvm_droplet_ms.design_space.sound_space import (
    FROM_TARGET,
    sound_schedules,
    sound_space,
)
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer
from tvm_droplet_ms.search_strategy.design_spaces import EncodedSpaces
from tvm_droplet_ms.search_strategy.known_schedules import TunedTask, nearest_points
from tvm_droplet_ms.search_strategy.published.decision_kinds import CATEGORICAL
from tvm_droplet_ms.session.database import open_database
from tvm_droplet_ms.tuning.kernel.kernel_run import module_of

ONE = Target({"kind": "llvm", "mcpu": "haswell", "num-cores": 1})
TWO = Target({"kind": "llvm", "mcpu": "haswell", "num-cores": 2})
WIDE = Target({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 1})
OTHER_TARGETS = {
    "AVX alone": Target({"kind": "llvm", "mcpu": "sandybridge", "num-cores": 1}),
    "SSE": Target({"kind": "llvm", "mcpu": "x86-64", "num-cores": 1}),
    "NEON": Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": 1}),
}
HINT = "pragma_loop_partition_hint"
needs_avx2 = pytest.mark.skipif(
    not target_has_features(["avx2"], host_target()), reason="this CPU has no AVX2"
)


def tiled(module, target=ONE, seed=1):
    """A random schedule of each design space of register tiles."""
    with fast_tune_contexts():
        space = sound_space(FROM_TARGET, module, target)
        context = TuneContext(module, target=target, space_generator=space, rand_state=seed)
        spaces = context.generate_design_space()
    replayer = ScreenedReplayer(module, context.space_generator.postprocs, random.Random(seed))
    ours = [each.trace for each in spaces if HINT in str(each.trace)]
    candidates = [replayer.replay(trace) for trace in ours]
    return [each.schedule.mod for each in candidates if each is not None]


def check(module, shapes, expected, target=ONE, dtype="float32"):
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(shape).astype(dtype) for shape in shapes]
    found = [mod for seed in range(3) for mod in tiled(module, target, seed)]
    assert found
    for mod in found:
        assert repeated_sum(mod) is None
        out = mod["main"].params[len(arrays)]
        result = tvm.runtime.empty([int(n) for n in out.shape], str(out.dtype))
        tvm.tirx.build(mod, target=target)["main"](*map(tvm.runtime.tensor, arrays), result)
        wanted = expected(*arrays)
        np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-4, atol=1e-4)


def dense(rows, columns, depth, dtype="float32"):
    a = te.placeholder((rows, depth), name="a", dtype=dtype)
    w = te.placeholder((depth, columns), name="w", dtype=dtype)
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * w[k, j], k), "c")
    return a, w, c


def convolution(size, inputs, outputs, stride=1):
    a = te.placeholder((1, size, size, inputs), name="a")
    w = te.placeholder((3, 3, inputs, outputs), name="w")
    return a, w, topi.nn.conv2d(a, w, stride, 1, 1, "NHWC", "HWIO")


def convolved(a, w, stride=1):
    places = range(0, a.shape[1], stride)
    padded = np.pad(a, ((0, 0), (1, 1), (1, 1), (0, 0)))
    rows = [[np.tensordot(padded[0, y : y + 3, x : x + 3], w, 3) for x in places] for y in places]
    return np.array(rows).reshape(1, len(places), len(places), -1)


needs_avx512 = pytest.mark.skipif(
    not target_has_features(["avx512f"], host_target()), reason="this CPU has no AVX-512"
)


@needs_avx512
@pytest.mark.parametrize("rows", [3, 31, 97])
@pytest.mark.parametrize("columns", [48, 272])
def test_rows_that_no_tile_of_wide_vectors_divides(rows, columns):
    a, w, c = dense(rows, columns, 20)
    module = module_of(te.create_prim_func([a, w, c]))
    check(module, [(rows, 20), (20, columns)], np.matmul, WIDE)


@needs_avx512
@pytest.mark.parametrize("target", [ONE, WIDE], ids=["AVX2", "AVX-512"])
def test_products_of_doubles(target):
    a, w, c = dense(13, 48, 20, "float64")
    module = module_of(te.create_prim_func([a, w, c]))
    check(module, [(13, 20), (20, 48)], np.matmul, target, "float64")


@needs_avx512
def test_frames_that_overlap():
    """A Fourier transform as a convolution of one channel: 97 frames, 160 samples apart."""
    a, w = te.placeholder((1, 1600, 1), name="a"), te.placeholder((64, 1, 48), name="w")
    module = module_of(te.create_prim_func([a, w, topi.nn.conv1d(a, w, 16, 0, 1, 1, "NWC", "WIO")]))

    def expected(a, w):
        frames = np.lib.stride_tricks.sliding_window_view(a[0, :, 0], 64)[::16]
        return (frames @ w[:, 0])[None]

    check(module, [(1, 1600, 1), (64, 1, 48)], expected, WIDE)


@needs_avx2
@pytest.mark.parametrize("target", [ONE, TWO], ids=["one thread", "two threads"])
@pytest.mark.parametrize("rows", [3, 13, 49, 64])
def test_rows_that_no_tile_divides(rows, target):
    a, w, c = dense(rows, 48, 20)
    module = module_of(te.create_prim_func([a, w, c]))
    check(module, [(rows, 20), (20, 48)], np.matmul, target)


@needs_avx2
@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_with_what_follows(stride):
    a, w, c = convolution(11, 12, 16, stride)
    bias, other = te.placeholder((16,), name="bias"), te.placeholder(c.shape, name="other")
    total = te.compute(c.shape, lambda n, y, x, f: c[n, y, x, f] + bias[f], "total")
    total = te.compute(c.shape, lambda *at: te.max(total(*at) + other(*at), 0.0), "last")
    module = module_of(te.create_prim_func([a, w, bias, other, total]))
    shapes = [(1, 11, 11, 12), (3, 3, 12, 16), (16,), [int(n) for n in c.shape]]

    def expected(a, w, bias, other):
        return np.maximum(convolved(a, w, stride) + bias + other, 0)

    check(module, shapes, expected)


@needs_avx2
@pytest.mark.parametrize(("stride", "is_flat"), [(1, True), (2, False)])
def test_pixels_of_a_plain_convolution_are_one_row(stride, is_flat):
    a, w = te.placeholder((2, 7, 7, 12), name="a"), te.placeholder((1, 1, 12, 16), name="w")
    c = topi.nn.conv2d(a, w, stride, 0, 1, "NHWC", "HWIO")
    other = te.placeholder(c.shape, name="other")
    last = te.compute(c.shape, lambda *at: te.max(c(*at) + other(*at), 0.0), "last")
    module = module_of(te.create_prim_func([a, w, other, last]))
    shapes = [(2, 7, 7, 12), (1, 1, 12, 16), [int(n) for n in c.shape]]

    def expected(a, w, other):
        return np.maximum(a[:, ::stride, ::stride] @ w[0, 0] + other, 0)

    check(module, shapes, expected)
    assert all(("sblock_alloc_buffer((2, 49, 16))" in str(mod)) == is_flat for mod in tiled(module))


@needs_avx2
@pytest.mark.parametrize("batch", [(3,), (2, 2)])
def test_matrices_of_a_batch_with_what_follows(batch):
    """Their rows are no long row: each batch has weights of its own."""
    shapes = [(*batch, 13, 20), (*batch, 20, 16)]
    a, w = (te.placeholder(shape, name=name) for shape, name in zip(shapes, "aw", strict=True))
    k = te.reduce_axis((0, 20), "k")

    def product(*at):
        return te.sum(a(*at[:-1], k) * w(*at[:-2], k, at[-1]), k)

    c = te.compute((*batch, 13, 16), product, name="c")
    last = te.compute(c.shape, lambda *at: te.max(c(*at), 0.0), name="last")
    module = module_of(te.create_prim_func([a, w, last]))
    check(module, shapes, lambda a, w: np.maximum(a @ w, 0))


def test_results_of_a_kernel_keep_their_shapes():
    """The sums, or what is between them and the last block, are read by somebody else, too."""
    a, w = te.placeholder((1, 7, 7, 12), name="a"), te.placeholder((1, 1, 12, 16), name="w")
    c = topi.nn.conv2d(a, w, 1, 0, 1, "NHWC", "HWIO")
    middle = te.compute(c.shape, lambda *at: c(*at) + 1.0, "middle")
    last = te.compute(c.shape, lambda *at: te.max(middle(*at), 0.0), "last")
    for results in ([c, last], [middle, last]):
        module = module_of(te.create_prim_func([a, w, *results]))
        before = [[int(n) for n in each.shape] for each in module["main"].params]
        for seed in range(2):
            for mod in tiled(module, seed=seed):
                assert [[int(n) for n in each.shape] for each in mod["main"].params] == before


@needs_avx2
def test_matrices_of_a_batch():
    a, w = te.placeholder((3, 13, 20), name="a"), te.placeholder((3, 20, 16), name="w")
    k = te.reduce_axis((0, 20), "k")
    c = te.compute((3, 13, 16), lambda n, i, j: te.sum(a[n, i, k] * w[n, k, j], k), "c")
    check(module_of(te.create_prim_func([a, w, c])), [(3, 13, 20), (3, 20, 16)], np.matmul)


def test_constant_weights_are_packed_and_others_must_be_in_order():
    a, w = te.placeholder((13, 20), name="a"), te.placeholder((32, 20), name="w")
    k = te.reduce_axis((0, 20), "k")
    c = te.compute((13, 32), lambda i, j: te.sum(a[i, k] * w[j, k], k), "c")
    module = module_of(te.create_prim_func([a, w, c]))
    assert not tiled(module)
    module["main"] = module["main"].with_attr("layout_free_buffers", [1])
    found = tiled(module)
    assert found and all("w_global" in str(mod) for mod in found)
    for mod in found:
        # TVM checks here that the weights' order is that of the sums.
        RemoveWeightLayoutRewriteBlock()(mod)


def test_the_tile_is_a_decision():
    a, w, c = dense(49, 32, 20)
    module = module_of(te.create_prim_func([a, w, c]))
    extents = {int(loop) for seed in range(12) for loop in _rows_of(module, seed)}
    assert len(extents) > 1 and any(49 % extent for extent in extents)


def _rows_of(module, seed):
    for mod in tiled(module, seed=seed):
        schedule = Schedule(mod)
        loops = schedule.get_loops(schedule.get_sblock("c_update"))
        hinted = [n for n, loop in enumerate(loops) if HINT in schedule.get(loop).annotations]
        assert len(hinted) == 1
        yield -(-49 // int(schedule.get(loops[hinted[0]]).extent))


@T.prim_func(s_tir=True)
def by_steps(a: T.Buffer((13, 32)), w: T.Buffer((32, 32)), c: T.Buffer((13, 32))):
    """Loops in another order than the axes of the block."""
    for i, k, j in T.grid(13, 32, 32):
        with T.sblock("c"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * w[vk, vj]


OTHERS = ["several", "lanes", "one row", "integers", "turned", "one number", *OTHER_TARGETS]


@pytest.mark.parametrize("what", OTHERS)
def test_other_kernels_keep_the_space_of_tvm(what):
    target = OTHER_TARGETS.get(what, ONE)
    rows, columns = (1 if what == "one row" else 13), (12 if what == "lanes" else 32)
    a, w, c = dense(rows, columns, 32)
    args = [a, w, c]
    if what == "several":
        v, k = te.placeholder((32, 32), name="v"), te.reduce_axis((0, 32), "k")
        args = [a, w, v, te.compute((13, 32), lambda i, j: te.sum(c[i, k] * v[k, j], k), "d")]
    if what == "integers":
        a, w = te.placeholder((13, 32), "int32"), te.placeholder((32, 32), "int32")
        args = [a, w, topi.nn.matmul(a, w)]
    if what == "turned":
        args = [a, w, te.compute((32, 13), lambda j, i: c[i, j] * 2.0, "turned")]
    if what == "one number":
        a, w = te.placeholder((24,), name="a"), te.placeholder((24,), name="w")
        k = te.reduce_axis((0, 24), "k")
        args = [a, w, te.compute((), lambda: te.sum(a[k] * w[k], k), "c")]
    assert not tiled(module_of(te.create_prim_func(args)), target)


def test_loops_in_another_order_keep_the_space_of_tvm():
    assert not tiled(module_of(by_steps))


def test_a_search_in_the_space_of_tvm_has_tiles_beside_it():
    """What ``ms.tune_tir`` generates without a space of its own, and with another one."""
    a, w, c = dense(49, 32, 20)
    module = module_of(te.create_prim_func([a, w, c]))
    with fast_tune_contexts():
        context = TuneContext(module, target=ONE, space_generator=FROM_TARGET)
        given = list(context.generate_design_space())
        found = list(sound_schedules(given, module, ONE, 0))
        assert [HINT in str(one.trace) for one in found] == [True] + [False] * len(given)
        assert sound_schedules(found, module, ONE, 0) is found
        own = given[:1]
        assert sound_schedules(own, module, ONE, 0) is own


@pytest.mark.parametrize("target", [ONE, TWO], ids=["one thread", "two threads"])
def test_a_database_keeps_the_point(target, tmp_path):
    """A search that goes on knows what was measured."""
    a, w = te.placeholder((1, 7, 7, 12), name="a"), te.placeholder((1, 1, 12, 16), name="w")
    last = topi.nn.relu(topi.nn.conv2d(a, w, 1, 0, 1, "NHWC", "HWIO"))
    module = module_of(te.create_prim_func([a, w, last]))
    with fast_tune_contexts():
        space = sound_space(FROM_TARGET, module, target)
        context = TuneContext(module, target=target, space_generator=space, rand_state=1)
        traces = [schedule.trace for schedule in context.generate_design_space()]
    spaces = EncodedSpaces(traces)
    replayer = ScreenedReplayer(module, context.space_generator.postprocs, random.Random(1))
    candidates = [replayer.replay(trace) for trace in traces if HINT in str(trace)]
    assert candidates
    database = open_database(tmp_path)
    workload = database.commit_workload(module)
    for candidate in candidates:
        database.commit_tuning_record(TuningRecord(candidate.trace, workload, [1.0], target))
    for candidate, record in zip(candidates, open_database(tmp_path).get_all_tuning_records()):
        assert spaces.find(record.trace) == spaces.find(candidate.trace) is not None


def test_a_known_tile_fits_where_fewer_are_offered():
    def spaces_of(rows):
        a, w, c = dense(rows, 32, 20)
        module = module_of(te.create_prim_func([a, w, c]))
        with fast_tune_contexts():
            space = sound_space(FROM_TARGET, module, ONE)
            context = TuneContext(module, target=ONE, space_generator=space, rand_state=1)
            traces = [schedule.trace for schedule in context.generate_design_space()]
        tiled = EncodedSpaces([trace for trace in traces if HINT in str(trace)])
        replayer = ScreenedReplayer(module, context.space_generator.postprocs, random.Random(1))
        return tiled, replayer

    many, _ = spaces_of(56)
    number = next(n for n, sketch in enumerate(many.sketches) if _tiles_of(many, n) == [4, 5, 6])
    tall = next(one for one in many.sketches[number].decisions if one.kind == CATEGORICAL)
    point = tall.replace(many.start(number), (2,))
    known = TunedTask.from_trace(many.trace((number, point)))
    few, replayer = spaces_of(14)
    assert _tiles_of(few, number) == [5]
    found = nearest_points([known], few, 3)
    assert found
    for one in found:
        assert replayer.replay(few.trace(one)) is not None


def _tiles_of(spaces, number):
    trace = spaces.trace((number, spaces.start(number)))
    kinds = ((inst.kind.name, inst) for inst in trace.insts)
    first = next(inst for name, inst in kinds if name == CATEGORICAL.name)
    return [int(each) for each in first.attrs[0]]

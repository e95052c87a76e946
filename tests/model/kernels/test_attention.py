# SPDX-License-Identifier: Apache-2.0
"""Attention as one kernel, beside TVM's own kernels of the same graph."""

from functools import cache

import kernel_chain
import numpy as np
import pytest
from graphs import Values, build, inputs_of
from kernel_chain import TARGET, picked

import tvm
from tvm import relax
from tvm.s_tir import Schedule
from tvm.target import Target
from tvm_droplet_ms.design_space.dot_products.find_dot import half_unit
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.model.half_products import compute_in_bfloat16
from tvm_droplet_ms.model.kernels.attention.attention_schedule import _tile_extents
from tvm_droplet_ms.model.kernels.attention.fused_attention import find_attentions
from tvm_droplet_ms.model.kernels.attention.operands import Viewed
from tvm_droplet_ms.model.kernels.lowering_passes import register_schedule_rules
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.tuning.compile.lowering import lower

op = relax.op

OWN_TARGET = Target({**host_target().export(), "num-cores": 1})
needs_halves = pytest.mark.skipif(
    half_unit(host_target()) is None, reason="this CPU has no AVX512_BF16"
)

register_schedule_rules()


def heads(emit, x, length, count, size):
    """(batch * length, count * size) as (batch, count, length, size)."""
    split = emit(op.reshape(x, (-1, length, count, size)))
    return emit(op.permute_dims(split, (0, 2, 1, 3)))


def attend(emit, queries, keys, values, *, scale=0.3, mask=lambda emit, scores: scores):
    """The usual form: keys transposed, scores scaled and masked."""
    keys = emit(op.permute_dims(keys, (0, 1, 3, 2)))
    queries = emit(op.multiply(relax.const(2.0), queries))
    scores = emit(op.multiply(emit(op.matmul(queries, keys)), relax.const(scale)))
    scores = emit(op.divide(scores, relax.const(2.0)))
    weights = emit(op.nn.softmax(mask(emit, scores)))
    return emit(op.matmul(weights, values))


def merged(emit, x):
    """(batch, count, length, size) as (batch * length, count * size)."""
    batch, count, length, size = map(int, x.ty.shape)
    moved = emit(op.permute_dims(x, (0, 2, 1, 3)))
    return emit(op.reshape(moved, (batch * length, count * size)))


def three_inputs(rows, columns, count, depth, width, batch=1, **options):
    def body(emit, q, k, v):
        factors = [
            heads(emit, q, rows, count, depth),
            heads(emit, k, columns, count, depth),
            heads(emit, v, columns, count, width),
        ]
        return merged(emit, attend(emit, *factors, **options))

    rows_of, width_of = (rows, columns, columns), (depth, depth, width)
    shapes = [(batch * n, count * size) for n, size in zip(rows_of, width_of)]
    return build(shapes, body, num_input=3)


def one_input(parts, length=19, count=2, size=16):
    """Queries, keys and values as parts of one tensor."""

    def body(emit, x):
        each = [heads(emit, part, length, count, size) for part in parts(emit, x, count * size)]
        return merged(emit, attend(emit, *each))

    return build((length, 3 * count * size), body, num_input=1)


def by_split(emit, x, width):
    halves = emit(op.split(x, 3, axis=1))
    return [emit(relax.TupleGetItem(halves, n)) for n in range(3)]


def by_uneven_split(emit, x, width):
    parts = emit(op.split(x, [width, 2 * width], axis=1))
    return [emit(relax.TupleGetItem(parts, n)) for n in range(3)]


def by_slices(emit, x, width):
    return [emit(op.strided_slice(x, [1], [n * width], [(n + 1) * width])) for n in range(3)]


def by_take(emit, x, width):
    """As PyTorch's multi-head attention does."""
    length = int(x.ty.shape[0])
    apart = emit(op.permute_dims(emit(op.reshape(x, (length, 3, width))), (1, 0, 2)))
    return [emit(op.take(apart, relax.const(n, "int64"), axis=0)) for n in range(3)]


def added(values):
    return lambda emit, scores: emit(op.add(scores, relax.const(values.astype("float32"))))


def filled(condition, fill, fills_where):
    def mask(emit, scores):
        constant, number = relax.const(condition), relax.const(fill)
        branches = (number, scores) if fills_where else (scores, number)
        return emit(op.where(constant, *branches))

    return mask


LOWER = np.tril(np.ones((21, 21), bool))
RNG = np.random.default_rng(5)

GRAPHS = {
    "all extents odd": three_inputs(13, 21, 3, 7, 24),
    "nothing to pad": three_inputs(16, 32, 2, 16, 32),
    "one head": three_inputs(9, 17, 1, 8, 8),
    "a wide head": three_inputs(8, 16, 2, 5, 144),
    "a width that vectors do not divide": three_inputs(13, 21, 3, 34, 33),
    "a width of less than a vector": three_inputs(13, 21, 2, 12, 12, batch=2),
    "a batch": three_inputs(13, 21, 3, 7, 24, batch=2),
    "large scores": three_inputs(13, 21, 2, 16, 16, scale=40.0),
    "negative scores": three_inputs(13, 21, 2, 16, 16, mask=added(np.full((1, 1), -300.0))),
    "a scale below zero": three_inputs(13, 21, 2, 16, 16, scale=-0.5),
    "a mask of columns": three_inputs(
        13, 21, 2, 16, 16, mask=added(np.where(np.arange(21) < 15, 0, -1e9)[None, None, None])
    ),
    "a bias of each score": three_inputs(
        13, 21, 2, 8, 16, mask=added(RNG.normal(size=(2, 13, 21)))
    ),
    "causal": three_inputs(21, 21, 2, 16, 16, mask=filled(~LOWER, float("-inf"), True)),
    "causal by what is seen": three_inputs(21, 21, 2, 16, 16, mask=filled(LOWER, -1e4, False)),
    "parts by a split": one_input(by_split),
    "parts by an uneven split": one_input(by_uneven_split),
    "parts by slices": one_input(by_slices),
    "parts by takes": one_input(by_take),
}


def three_axes():
    """Products of three axes, and a mask of four: as exported by PyTorch."""

    def body(emit, q, k, v):
        scores = emit(op.multiply(emit(op.matmul(q, k)), relax.const(0.5)))
        scores = emit(op.reshape(scores, (2, 3, 13, 21)))
        mask = relax.const(RNG.normal(size=(2, 1, 1, 21)).astype("float32"))
        weights = emit(op.nn.softmax(emit(op.add(mask, scores))))
        return emit(op.matmul(emit(op.reshape(weights, (6, 13, 21))), v))

    return build([(6, 13, 8), (6, 8, 21), (6, 21, 16)], body, num_input=3)


def followed(after):
    """What is computed with the result in the same kernel, given it and a tensor of its shape."""

    def body(emit, q, k, v, x):
        mixed = emit(op.matmul(emit(op.nn.softmax(emit(op.matmul(q, k)))), v))
        return after(emit, mixed, x)

    return build([(2, 13, 8), (2, 8, 21), (2, 21, 16), (2, 13, 16)], body, num_input=4)


def gated(emit, mixed, x):
    return emit(op.multiply(mixed, emit(op.sigmoid(x))))


def gelu_in_parts(emit, mixed, x):
    gate = emit(op.add(relax.const(1.0), emit(op.erf(mixed))))
    return emit(op.add(emit(op.multiply(emit(op.multiply(mixed, relax.const(0.5))), gate)), x))


def mask_in_front_of_a_reshape():
    """One for each of six heads, added to scores of three axes."""

    def body(emit, q, k, v):
        mask = relax.const(RNG.normal(size=(6, 1, 21)).astype("float32"))
        scores = emit(op.add(emit(op.matmul(q, k)), mask))
        weights = emit(op.nn.softmax(emit(op.reshape(scores, (2, 3, 13, 21)))))
        return emit(op.matmul(emit(op.reshape(weights, (6, 13, 21))), v))

    return build([(6, 13, 8), (6, 8, 21), (6, 21, 16)], body, num_input=3)


def windows():
    """Swin's: a bias of each head, and a mask of each window in front of it."""

    def body(emit, q, k, v):
        bias = relax.const(RNG.normal(size=(1, 3, 16, 16)).astype("float32"))
        mask = relax.const(
            np.where(RNG.normal(size=(1, 2, 1, 16, 16)) > 0, 0, -100).astype("float32")
        )
        scores = emit(op.add(emit(op.multiply(emit(op.matmul(q, k)), relax.const(0.5))), bias))
        apart = emit(op.reshape(scores, (2, 2, 3, 16, 16)))
        masked = emit(op.reshape(emit(op.add(apart, mask)), (4, 3, 16, 16)))
        return emit(op.matmul(emit(op.nn.softmax(masked)), v))

    return build([(4, 3, 16, 8), (4, 3, 8, 16), (4, 3, 16, 8)], body, num_input=3)


GRAPHS["windows"] = windows()


def rows_without_a_key(is_row=True):
    """Weights that a choice makes 0, as in ONNX's ``Attention``; all are masked by -inf."""

    def body(emit, q, k, v):
        blank = np.arange(13) % 3 == 1
        mask = relax.const(np.where(blank[:, None], -np.inf, np.zeros((13, 21))).astype("float32"))
        weights = emit(op.nn.softmax(emit(op.add(emit(op.matmul(q, k)), mask))))
        hidden = relax.const(
            blank[:, None] if is_row else np.broadcast_to(blank[:, None], (13, 21))
        )
        weights = emit(op.where(hidden, relax.const(0.0), weights))
        return emit(op.matmul(weights, v))

    return build([(2, 13, 8), (2, 8, 21), (2, 21, 16)], body, num_input=3)


GRAPHS["rows without a key"] = rows_without_a_key()
GRAPHS["products of three axes"] = three_axes()
GRAPHS["a gate"] = followed(gated)
GRAPHS["a GELU in parts"] = followed(gelu_in_parts)
GRAPHS["a mask in front of a reshape"] = mask_in_front_of_a_reshape()


def by_tvm(mod, inputs):
    """What TVM's own kernels compute."""
    return kernel_chain.execute(lower(mod, TARGET, is_reference=True), inputs)[0]


@cache
def expected_of(name):
    """The output of a graph by TVM's own kernels, which are compiled once for all tests."""
    return by_tvm(GRAPHS[name], inputs_of(GRAPHS[name]))


@pytest.mark.parametrize("name", GRAPHS)
def test_one_kernel_computes_what_tvms_do(name):
    mod = GRAPHS[name]
    inputs = inputs_of(mod)
    lowered = lower(mod, TARGET)
    (kernel,) = names_of(
        var.name_hint for var in lowered.get_global_vars() if var.name_hint != "main"
    )
    assert "attention" in kernel
    (actual,) = kernel_chain.execute(lowered, inputs)
    np.testing.assert_allclose(actual, expected_of(name), rtol=2e-5, atol=2e-6)


@needs_halves
@pytest.mark.parametrize("name", GRAPHS)
def test_attention_of_halves(name):
    """Without a schedule: queries, keys, values and weights are rounded to eight bits."""
    mod = compute_in_bfloat16()(GRAPHS[name])
    inputs = inputs_of(mod)
    lowered = lower(mod, TARGET)
    is_even = name not in ("all extents odd", "a wide head", "a batch")
    assert ('"bfloat16")' in lowered.script()) == is_even
    (actual,) = kernel_chain.execute(lowered, inputs)
    expected = expected_of(name)
    limits = {"rtol": 2e-5, "atol": 2e-6}
    if is_even:
        # A softmax of large scores makes more of their rounding.
        share = 6e-2 if name == "large scores" else 2e-2
        limits = {"rtol": 0, "atol": share * np.abs(expected).max()}
    np.testing.assert_allclose(actual, expected, **limits)


def names_of(names):
    """Names without numbers, but for reshapes, which move no element unless they are a result."""
    return [
        name for name in sorted(each.rstrip("0123456789") for each in names) if name != "reshape"
    ]


def is_vectorized(schedule, name):
    """True if vectors go over the rows, so that each of their elements is gathered: slow to run,
    and 20 s to compile."""
    loops = schedule.get_loops(schedule.get_sblock(name))
    return any(schedule.get(loop).kind == tvm.tirx.ForKind.VECTORIZED for loop in loops)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("name", "is_of_halves"),
    [
        ("a width that vectors do not divide", False),
        pytest.param("a width that vectors do not divide", True, marks=needs_halves),
        *((name, False) for name in ("a batch", "parts by takes", "a gate", "a GELU in parts")),
        *(
            pytest.param(name, True, marks=needs_halves)
            for name in ("nothing to pad", "parts by takes", "a gate", "a scale below zero")
        ),
    ],
)
def test_every_schedule_computes_the_same(name, is_of_halves, seed):
    """A random point of each of the two design spaces."""
    mod = GRAPHS[name]
    inputs = inputs_of(mod)
    expected = expected_of(name)
    mod = compute_in_bfloat16()(mod) if is_of_halves else mod
    lowered = lower(mod, TARGET)
    (name,) = (var for var in lowered.get_global_vars() if "attention" in var.name_hint)
    kernel = lowered[name].with_attr("global_symbol", "main")
    workload = tvm.ir.IRModule({"main": kernel})
    target = OWN_TARGET if is_of_halves else TARGET
    context, spaces = kernel_chain.design_space(workload, seed, target)
    assert len(spaces) == 2
    for space in spaces:
        schedule = Schedule(workload, seed=seed + 1)
        kernel_chain.Trace(space.trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
        schedule.enter_postproc()
        assert all(post.apply(schedule) for post in context.space_generator.postprocs)
        assert not any(is_vectorized(schedule, name) for name in ("largest", "total"))
        library = tvm.compile(schedule.mod, target)
        result = tvm.runtime.empty(kernel.params[-1].shape, "float32")
        library["main"](*map(tvm.runtime.tensor, inputs), result)
        actual = result.numpy().reshape(expected.shape)
        limits = {"rtol": 2e-5, "atol": 2e-6}
        if is_of_halves:
            assert "dot_16x2_bfloat16" in str(schedule.trace)
            limits = {"rtol": 0, "atol": 2e-2 * np.abs(expected).max()}
        np.testing.assert_allclose(actual, expected, **limits)


def unfused(**changes):
    """Graphs that are no attention, or not one that the kernel serves."""
    return three_inputs(
        **{"rows": 13, "columns": 21, "count": 2, "depth": 16, "width": 16} | changes
    )


def shown_weights():
    """The weights are a result too."""

    def body(emit, q, k, v):
        weights = emit(op.nn.softmax(emit(op.matmul(q, k))))
        return emit(op.matmul(weights, v)), weights

    return build([(2, 16, 8), (2, 8, 32), (2, 32, 8)], body, num_input=3)


def scaled_after_the_mask():
    def mask(emit, scores):
        masked = emit(op.add(scores, relax.const(np.ones((1, 21), "float32"))))
        return emit(op.multiply(masked, relax.const(2.0)))

    return unfused(mask=mask)


def softmax_over_rows():
    def body(emit, q, k, v):
        weights = emit(op.nn.softmax(emit(op.matmul(q, k)), axis=1))
        return emit(op.matmul(weights, v))

    return build([(2, 16, 8), (2, 8, 32), (2, 32, 8)], body, num_input=3)


def plain(q, k, v, *, dtype="float32", mask=None, softmax_of=None, **options):
    """Three tensors of these shapes, multiplied as they are."""

    def body(emit, q, k, v):
        scores = emit(op.matmul(q, k, **options))
        scores = scores if mask is None else emit(op.add(scores, relax.const(mask)))
        scores = scores if softmax_of is None else softmax_of(emit, scores)
        return emit(op.matmul(emit(op.nn.softmax(scores)), v, **options))

    return build([q, k, v], body, num_input=3, dtype=dtype)


def batches_by_the_mask():
    """The mask has three batches, the queries one."""

    def body(emit, q, k, v):
        mask = relax.const(np.ones((3, 1, 16, 32), "float32"))
        return emit(op.matmul(emit(op.nn.softmax(emit(op.add(emit(op.matmul(q, k)), mask)))), v))

    return build([(1, 2, 16, 8), (1, 2, 8, 32), (3, 2, 32, 8)], body, num_input=3)


def beyond_float32(emit, scores):
    for _ in range(2):
        scores = emit(op.multiply(scores, relax.const(1e30)))
    return scores


def keys_taken_where_the_mode_decides():
    def body(emit, q, x, v):
        keys = emit(op.take(x, relax.const(5, "int64"), axis=0, mode="clip"))
        return emit(op.matmul(emit(op.nn.softmax(emit(op.matmul(q, keys)))), v))

    return build([(2, 16, 8), (3, 2, 8, 32), (2, 32, 8)], body, num_input=3)


SHAPES = (2, 16, 8), (2, 8, 32), (2, 32, 8)

NOT_FUSED = {
    "halves that are summed up in float32": plain(*SHAPES, dtype="float16", out_dtype="float32"),
    "batches that the mask adds": batches_by_the_mask(),
    "a scale that float32 has not": plain(*SHAPES, softmax_of=beyond_float32),
    "no depth": plain((2, 16, 0), (2, 0, 32), (2, 32, 8)),
    "weights that are 0 one by one": rows_without_a_key(is_row=False),
    "few rows of keys that vectors do not divide": unfused(rows=4, depth=6),
    "few columns": unfused(columns=9),
    "a narrow width": unfused(width=7),
    "few rows and a width that vectors do not divide": unfused(rows=4, width=12),
    "weights that are a result": shown_weights(),
    "scaled after the mask": scaled_after_the_mask(),
    "softmax over the rows": softmax_over_rows(),
}


@pytest.mark.parametrize("name", NOT_FUSED)
def test_what_is_no_attention_is_left(name):
    assert find_attentions(NOT_FUSED[name]["main"]) == {}


def test_what_has_no_known_place_is_read_as_it_is():
    """A part that is outside: its place depends on the mode of the operator."""
    mod = keys_taken_where_the_mode_decides()
    (found,) = find_attentions(mod["main"]).values()
    assert found.keys.source.name != "x1"


def test_a_mask_is_found_in_a_prepared_graph():
    """Preparing moves the reshape of the products behind the mask."""
    with TARGET:
        prepared = prepare_graph()(three_axes_with_one_mask())
    assert len(find_attentions(prepared["main"])) == 1


def three_axes_with_one_mask():
    def body(emit, q, k, v):
        scores = emit(op.reshape(emit(op.matmul(q, k)), (1, 6, 13, 21)))
        mask = relax.const(RNG.normal(size=(1, 1, 1, 21)).astype("float32"))
        weights = emit(op.nn.softmax(emit(op.add(scores, mask))))
        return emit(op.matmul(emit(op.reshape(weights, (6, 13, 21))), v))

    return build([(6, 13, 8), (6, 8, 21), (6, 21, 16)], body, num_input=3)


def test_equal_layers_are_one_kernel():
    def body(emit, x):
        for _ in range(3):
            each = [heads(emit, part, 19, 2, 16) for part in by_take(emit, x, 32)]
            mixed = merged(emit, attend(emit, *each))
            x = emit(op.matmul(mixed, Values().normal(32, 96)))
        return x

    tasks = picked(build((19, 96), body, num_input=1)).tasks
    assert names_of(task.task_name for task in tasks) == ["attention", "matmul"]


def test_tiles_fit_a_cache():
    """Rows of 4,096 scores and weights are 32 KiB; of 64 rows, 2 MiB."""
    assert _tile_extents(4096, 8, 8 * 4096) == [8, 16, 32, 64]
    assert _tile_extents(4096, 8, 8 * 16384) == [8, 16]
    assert _tile_extents(198, 6, 8 * 208) == [6, 18]
    # A tile of the fewest rows, however long they are.
    assert _tile_extents(24, 12, 8 << 20) == [12]


def test_a_view_has_the_places_that_numpy_moves_elements_to():
    source = np.arange(6 * 20).reshape(6, 20)
    viewed = Viewed(source.shape)
    steps = [lambda a: a[:, 4:16], lambda a: a.reshape(6, 3, 4), lambda a: a.transpose(1, 0, 2)]
    assert all(map(viewed.apply, steps))
    expected = source
    for step in steps:
        expected = step(expected)
    view = viewed.view()
    for at in np.ndindex(expected.shape):
        assert view.place(*at) == expected[at]
    assert not viewed.apply(lambda a: a.reshape(18, 4).reshape(-1))
    assert viewed.view() == view


@pytest.mark.parametrize(("batch", "rows", "shape"), [(4, 4, (8, 2, 64)), (6, 4, (4, 6, 64))])
def test_scores_whose_rows_are_torn_apart_behind_a_mask(batch, rows, shape):
    """The softmax is over other rows than those that the mask is broadcast to."""
    shapes = [(batch, rows, 16), (batch, 16, 64), (batch, 1, 64), (shape[0], 64, 16)]

    def body(emit, q, k, m, v):
        scores = emit(op.add(emit(op.matmul(q, k)), m))
        return op.matmul(emit(op.nn.softmax(emit(op.reshape(scores, shape)))), v)

    mod = build(shapes, body, num_input=4)
    q, k, m, v = inputs = inputs_of(mod)
    scores = np.exp((q @ k + m).reshape(shape).astype("float64"))
    expected = scores / scores.sum(-1, keepdims=True) @ v
    with TARGET:
        found = by_tvm(prepare_graph()(mod), inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_softmax_of_one_row():
    """Its scores have one axis in front of the reshape."""
    mod = build((64,), lambda emit, x: op.nn.softmax(emit(op.reshape(x, (1, 1, 64)))), num_input=1)
    (x,) = inputs = inputs_of(mod)
    with TARGET:
        found = by_tvm(prepare_graph()(mod), inputs)
    np.testing.assert_allclose(found[0, 0], np.exp(x) / np.exp(x).sum(), rtol=1e-5)

# SPDX-License-Identifier: Apache-2.0
"""Removal of dropouts, unstacking of reductions, placing of constants, folding with NumPy."""

import numpy as np
import pytest
from graphs import Values, apply, assert_same, build, operators
from numpy_relax import evaluate

import tvm
from tvm import relax
from tvm_droplet_ms.model.folding.numpy_folding import fold_constants
from tvm_droplet_ms.model.folding.taps import fold_pads
from tvm_droplet_ms.model.layout.layout import drop_dropouts, expand_clips, place_constants
from tvm_droplet_ms.model.stacks import concatenate_stacks, unstack_reductions

op = relax.op


@pytest.mark.parametrize("is_last", [False, True])
def test_dropouts_disappear(is_last):
    def body(emit, x):
        y = emit(relax.TupleGetItem(emit(op.nn.dropout(emit(op.nn.relu(x)), 0.5)), 0))
        return y if is_last else emit(op.negative(y))

    before = build((2, 3), body)
    after = apply(drop_dropouts(), before)
    assert operators(after) == {"relax.nn.relu": 1} | ({} if is_last else {"relax.negative": 1})
    assert_same(before, after)


def test_dropout_whose_mask_is_used_stays():
    def body(emit, x):
        call = emit(op.nn.dropout(x))
        return emit(relax.TupleGetItem(call, 0)), emit(relax.TupleGetItem(call, 1))

    assert operators(apply(drop_dropouts(), build((2, 3), body))) == {"relax.nn.dropout": 1}


@pytest.mark.parametrize(
    ("reduce", "pair"),
    [(op.sum, "relax.add"), (op.max, "relax.maximum"), (op.min, "relax.minimum")],
)
def test_reduction_of_a_stack_becomes_pairs(reduce, pair):
    def body(emit, x):
        shape = (2, 3, 4)
        tensors = [x, emit(op.nn.relu(x)), Values().normal(3, 1), relax.const(np.float32(0.25))]
        tensors = [emit(op.broadcast_to(tensor, shape)) for tensor in tensors]
        return emit(reduce(emit(op.stack(tensors, axis=0)), axis=0))

    before = build((2, 3, 4), body)
    after = apply(unstack_reductions(), before)
    assert operators(after) == {pair: 3, "relax.nn.relu": 1}
    assert_same(before, after)


def test_stack_of_tensors_that_are_all_broadcast_keeps_one_broadcast():
    def body(emit, x):
        tensors = [x, Values().normal(2, 1)]
        tensors = [emit(op.broadcast_to(tensor, (2, 3))) for tensor in tensors]
        return emit(op.sum(emit(op.stack(tensors)), axis=[0]))

    before = build((1, 3), body)
    after = apply(unstack_reductions(), before)
    assert operators(after)["relax.stack"] == 0
    assert_same(before, after)


@pytest.mark.parametrize(
    ("axis", "options"), [(1, {"axis": [1]}), (0, {"axis": [1]}), (0, {"axis": [0], "keepdims": 1})]
)
def test_other_reductions_of_stacks_stay(axis, options):
    def body(emit, x):
        return emit(op.sum(emit(op.stack([x, x], axis=axis)), **options))

    before = build((2, 3), body)
    assert operators(apply(unstack_reductions(), before)) == {"relax.stack": 1, "relax.sum": 1}


@pytest.mark.parametrize("axis", [0, 2, -1])
def test_stack_becomes_a_concatenation(axis):
    before = build((2, 3), lambda emit, x: emit(op.stack([x, emit(op.nn.relu(x))], axis=axis)))
    after = apply(concatenate_stacks(), before)
    assert operators(after) == {"relax.nn.relu": 1, "relax.expand_dims": 2, "relax.concat": 1}
    assert_same(before, after, tolerance=0)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((0, 6), ["maximum", "minimum"]),
        ((-0.5, 0.25), ["maximum", "minimum"]),
        ((0.1, np.inf), ["maximum"]),
        ((-np.inf, 0.1), ["minimum"]),
        ((-np.inf, np.inf), []),
        # TVM's clip(x, 5, 3) is 5; the minimum of a maximum would be 3.
        ((5, 3), ["clip"]),
        ((np.nan, 1), ["clip"]),
        ((0, np.nan), ["clip"]),
    ],
)
def test_clip_between_bounds_of_an_interval_becomes_a_maximum_and_a_minimum(bounds, expected):
    before = build((4, 5), lambda emit, x: emit(op.clip(x, *bounds)))
    after = apply(expand_clips(), before)
    assert operators(after) == {f"relax.{name}": 1 for name in expected}
    if expected != ["clip"]:
        assert_same(before, after)


def test_clip_of_another_type_stays():
    before = build((4, 5), lambda emit, x: emit(op.clip(emit(op.astype(x, "float64")), 0, 6)))
    assert operators(apply(expand_clips(), before)) == {"relax.astype": 1, "relax.clip": 1}


def padded_convolution(pad_width, **options):
    """Make a function that pads and convolves."""

    def body(emit, x):
        pad_options = {k: v for k, v in options.items() if k.startswith("pad_")}
        rest = {k: v for k, v in options.items() if not k.startswith("pad_")}
        y = emit(op.nn.pad(x, pad_width, **pad_options))
        return emit(op.nn.conv2d(y, Values().normal(*rest.pop("weight", (4, 3, 3, 3))), **rest))

    return body


@pytest.mark.parametrize(
    ("shape", "pad_width", "options"),
    [
        ((1, 3, 5, 6), [0, 0, 0, 0, 1, 2, 0, 3], {}),
        ((1, 3, 5, 6), [0, 0, 0, 0, 1, 2, 0, 3], {"padding": (1, 0, 0, 2), "strides": (2, 1)}),
        (
            (1, 5, 6, 4),
            [0, 0, 1, 2, 0, 3, 0, 0],
            {
                "data_layout": "NHWC",
                "kernel_layout": "HWIO",
                "weight": (3, 3, 2, 6),
                "groups": 2,
                "dilation": (1, 2),
            },
        ),
    ],
)
def test_pad_goes_into_the_convolution(shape, pad_width, options):
    before = build(shape, padded_convolution(pad_width, **options))
    after = apply(fold_pads(), before)
    assert operators(after) == {"relax.nn.conv2d": 1}
    assert_same(before, after)


@pytest.mark.parametrize(
    ("pad_width", "options"),
    [
        ([0, 0, 0, 0, 1, 1, 1, 1], {"pad_value": 1.0}),
        ([0, 0, 0, 0, 1, 1, 1, 1], {"pad_mode": "reflect"}),
        ([1, 0, 0, 0, 1, 1, 1, 1], {}),
        ([0, 0, 0, 1, 1, 1, 1, 1], {"weight": (4, 4, 3, 3)}),
    ],
)
def test_other_pads_stay(pad_width, options):
    before = build((1, 3, 5, 6), padded_convolution(pad_width, **options))
    assert operators(apply(fold_pads(), before)) == {"relax.nn.pad": 1, "relax.nn.conv2d": 1}


def test_pad_that_something_else_uses_is_left_for_that():
    def body(emit, x):
        y = emit(op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1]))
        return emit(op.nn.conv2d(y, Values().normal(4, 3, 3, 3))), y

    before = build((1, 3, 5, 6), body)
    after = apply(fold_pads(), before)
    assert operators(after) == {"relax.nn.pad": 1, "relax.nn.conv2d": 1}
    assert list(after["main"].body.blocks[0].bindings[1].value.attrs.padding) == [1, 1, 1, 1]
    assert_same(before, after)


def operands(mod):
    """For each operation: the ranks of its constant operands; None for variables."""
    return [
        [len(arg.ty.shape) if isinstance(arg, tvm.ir.GenericConst) else None for arg in value.args]
        for block in mod["main"].body.blocks
        for value in [binding.value for binding in block.bindings]
        if isinstance(value, relax.Call)
    ]


@pytest.mark.parametrize(
    ("name", "is_left", "shape", "expected"),
    [
        # A constant goes to the right, and gets full rank.
        *((name, True, (3, 1, 1), [[None, 4]]) for name in ("add", "multiply")),
        *((name, True, (3, 1, 1), [[None, 4]]) for name in ("maximum", "minimum")),
        # A subtraction from it becomes an addition.
        ("subtract", True, (3, 1, 1), [[None], [None, 4]]),
        ("divide", False, (2,), [[None, 4]]),
        # Scalars, full and higher ranks stay, and so does a division of a constant.
        *(("add", False, shape, [[None, len(shape)]]) for shape in ((), (1, 3, 2, 2))),
        ("add", False, (5, 1, 3, 2, 2), [[None, 5]]),
        ("divide", True, (3, 1, 1), [[3, None]]),
    ],
)
def test_the_place_and_the_rank_of_a_constant(name, is_left, shape, expected):
    def body(emit, x):
        constant = Values().positive(*shape)
        return emit(getattr(op, name)(*((constant, x) if is_left else (x, constant))))

    before = build((1, 3, 2, 2), body)
    after = apply(place_constants(), before)
    assert operands(after) == expected
    assert_same(before, after, tolerance=0)


def test_subtraction_of_unsigned_integers_stays():
    """TVM cannot negate them; they wrap around, as in NumPy."""

    def body(emit, x):
        small = emit(op.astype(x, "uint8"))
        return emit(op.subtract(relax.const(np.array([1, 2, 200], "uint8")), small))

    after = apply(place_constants(), build((2, 3), body))
    machine = relax.VirtualMachine(tvm.compile(after, "llvm"), tvm.cpu())
    x = np.array([[0, 1, 2], [3, 4, 5]], "float32")
    found = machine["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(found, np.array([1, 2, 200], "uint8") - x.astype("uint8"))


def test_operations_on_constants_are_folded():
    def body(emit, x):
        values = Values()
        weight = emit(op.permute_dims(values.normal(4, 3), None))
        bias = emit(op.reshape(emit(op.sqrt(values.positive(4))), (1, 4)))
        bias = emit(op.add(bias, emit(op.expand_dims(values.normal(4), 0))))
        return emit(op.add(emit(op.matmul(x, weight)), bias))

    before = build((2, 3), body)
    after = apply(fold_constants(), before)
    assert operators(after) == {"relax.matmul": 1, "relax.add": 1}
    assert_same(before, after)


def test_slices_concatenations_and_paddings_of_constants_are_folded():
    """Weights of recurrent layers are packed so; TVM compiles a function for each step."""

    def body(emit, x):
        weight = Values().normal(6, 4)
        parts = [
            emit(op.strided_slice(weight, [0, 1], [low, 0], [low + 2, 4], [1, 2])) for low in (4, 0)
        ]
        both = emit(op.concat([*parts, emit(op.zeros((1, 2), "float32"))], 0))
        return emit(op.add(x, emit(op.nn.pad(both, [0, 1, 2, 0], "constant", 3.0))))

    before = build((6, 4), body)
    after = apply(fold_constants(), before)
    assert operators(after) == {"relax.add": 1}
    weight = Values().normal(6, 4).value.numpy()
    expected = np.full((6, 4), 3.0, "float32")
    expected[:2, 2:], expected[2:4, 2:], expected[4, 2:] = weight[4:6, ::2], weight[:2, ::2], 0
    np.testing.assert_array_equal(evaluate(after, np.zeros((6, 4), "float32")), expected)


def test_products_larger_than_their_factors_and_unknown_operations_stay():
    def body(emit, x):
        values = Values()
        product = emit(op.multiply(values.normal(40, 1), values.normal(1, 40)))
        return emit(op.add(emit(op.matmul(x, product)), emit(op.sigmoid(values.normal(40)))))

    before = build((2, 40), body)
    assert operators(apply(fold_constants(), before)) == operators(before)


def test_a_constant_padded_by_negative_widths_stays():
    """They take elements away, which NumPy does not."""

    def body(emit, x):
        cut = emit(op.nn.pad(Values().normal(2, 5), [0, 0, -1, -1]))
        return emit(op.add(x, cut))

    before = build((2, 3), body)
    assert operators(apply(fold_constants(), before)) == {"relax.nn.pad": 1, "relax.add": 1}


def test_folded_transpose_is_contiguous():
    def body(emit, x):
        return emit(op.multiply(x, emit(op.permute_dims(Values().normal(3, 2)))))

    before = build((2, 3), body)
    x = np.ones((2, 3), "float32")
    expected = np.random.default_rng(0).standard_normal((3, 2)).astype("float32").T
    np.testing.assert_array_equal(evaluate(apply(fold_constants(), before), x), expected)


def test_constants_of_types_that_numpy_lacks_stay():
    constant = relax.const(tvm.runtime.empty((3, 2), "bfloat16"))

    def body(emit, x):
        return emit(op.astype(emit(op.permute_dims(constant)), "float32")), x

    before = build((2, 3), body)
    assert operators(apply(fold_constants(), before)) == operators(before)

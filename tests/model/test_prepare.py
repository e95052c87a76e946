# SPDX-License-Identifier: Apache-2.0
"""The whole preparation, on random graphs."""

import numpy as np
from graphs import Values, apply, assert_same, batch_norm, build, operators
from hypothesis import given, settings
from hypothesis import strategies as st

import tvm
from tvm import relax
from tvm_droplet_ms.model.prepare import prepare_graph

op = relax.op
CHANNELS = 4
OPERATIONS = [
    "conv",
    "grouped conv",
    "depthwise conv",
    "batch norm",
    "scale of rank 3",
    "constant on the left",
    "relu",
    "relu6",
    "residual",
    "max pool",
    "average pool",
    "concat",
    "shuffle",
    "dropout",
    "sum of a stack",
    "pad",
]


def extend(emit, values, earlier, operation):
    """Emit one operation on the last value, or the last two. Channels stay as they are."""
    x = earlier[-1]
    weight = {
        "conv": lambda: (values.normal(CHANNELS, CHANNELS, 3, 3), 1),
        "grouped conv": lambda: (values.normal(CHANNELS, CHANNELS // 2, 1, 1), 2),
        "depthwise conv": lambda: (values.normal(CHANNELS, 1, 3, 3), CHANNELS),
    }
    if operation in weight:
        kernel, groups = weight[operation]()
        padding = 1 if int(kernel.ty.shape[2]) == 3 else 0
        return emit(op.nn.conv2d(x, kernel, padding=padding, groups=groups))
    if operation == "batch norm":
        return batch_norm(emit, values, x, CHANNELS)
    if operation == "scale of rank 3":
        return emit(op.multiply(x, values.normal(CHANNELS, 1, 1)))
    if operation == "constant on the left":
        return emit(op.subtract(values.normal(1, CHANNELS, 1, 1), x))
    if operation == "relu6":
        return emit(op.clip(x, 0, 6))
    if operation == "residual":
        same = [y for y in earlier if tuple(map(int, y.ty.shape)) == tuple(map(int, x.ty.shape))]
        return emit(op.add(x, same[0]))
    if operation == "max pool":
        return emit(op.nn.max_pool2d(x, (2, 2), (1, 1), (0, 0, 1, 1)))
    if operation == "average pool":
        return emit(op.nn.avg_pool2d(x, (3, 3), (1, 1), (1, 1, 1, 1), count_include_pad=True))
    if operation == "concat":
        y = emit(op.concat([x, emit(op.nn.relu(x))], axis=1))
        return emit(op.nn.conv2d(y, values.normal(CHANNELS, 2 * CHANNELS, 1, 1)))
    if operation == "shuffle":
        _, _, height, width = map(int, x.ty.shape)
        y = emit(op.reshape(x, (1, 2, CHANNELS // 2, height, width)))
        y = emit(op.permute_dims(y, (0, 2, 1, 3, 4)))
        return emit(op.reshape(y, (1, CHANNELS, height, width)))
    if operation == "dropout":
        return emit(relax.TupleGetItem(emit(op.nn.dropout(x)), 0))
    if operation == "sum of a stack":
        return emit(op.sum(emit(op.stack([x, earlier[0]], axis=0)), axis=0))
    if operation == "pad":
        y = emit(op.nn.pad(x, [0, 0, 0, 0, 1, 1, 0, 0]))
        return emit(op.nn.conv2d(y, values.normal(CHANNELS, CHANNELS, 3, 1)))
    return emit(op.nn.relu(x))


@settings(max_examples=30, derandomize=True, deadline=None, database=None)
@given(
    operations=st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=8),
    outputs=st.sets(st.integers(0, 8), max_size=2),
    seed=st.integers(0, 9),
)
def test_prepared_random_graph_gives_the_same_outputs(operations, outputs, seed):
    values = Values(seed)

    def body(emit, x):
        earlier = [emit(op.nn.conv2d(x, values.normal(CHANNELS, CHANNELS, 1, 1)))]
        for operation in operations:
            earlier.append(extend(emit, values, earlier, operation))
        return [earlier[index] for index in sorted(outputs) if index < len(earlier) - 1] + [
            earlier[-1]
        ]

    before = build((1, CHANNELS, 5, 5), body)
    after = apply(prepare_graph(), before)
    counts = operators(after)
    gone = ["nn.batch_norm", "nn.dropout", "clip", "stack", "nn.pad"]
    assert not [name for name in gone if counts[f"relax.{name}"]]
    shuffles = operations.count("shuffle")
    returned = len([binding for binding in after["main"].ret_ty.fields])
    assert counts["relax.permute_dims"] <= 1 + shuffles + returned
    assert_same(before, after, tolerance=1e-5)


def test_prepared_network_compiles_to_the_same_outputs():
    def body(emit, x):
        values = Values()
        earlier = [emit(op.nn.conv2d(x, values.normal(CHANNELS, CHANNELS, 1, 1)))]
        for operation in OPERATIONS:
            earlier.append(extend(emit, values, earlier, operation))
        y = emit(op.reshape(emit(op.mean(earlier[-1], axis=[2, 3])), (1, CHANNELS)))
        return emit(op.matmul(y, values.normal(CHANNELS, 3)))

    before = build((1, CHANNELS, 5, 5), body)
    after = apply(prepare_graph(), before)
    x = tvm.runtime.tensor(np.random.default_rng(1).standard_normal((1, 4, 5, 5)).astype("float32"))
    expected, actual = (
        relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())["main"](x).numpy()
        for mod in (before, after)
    )
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_preparing_twice_changes_nothing():
    before = build((1, 4, 5, 5), lambda emit, x: extend(emit, Values(), [x], "concat"))
    once = apply(prepare_graph(), before)
    twice = apply(prepare_graph(), once)
    assert operators(twice) == operators(once)
    assert_same(before, twice)


def test_a_pad_in_front_of_an_idle_cast_becomes_the_padding():
    def body(emit, x):
        whole = emit(op.astype(emit(op.nn.pad(x, [0, 0, 0, 0, 1, 1, 0, 2])), "float32"))
        return emit(op.nn.conv2d(whole, Values().normal(CHANNELS, CHANNELS, 3, 3)))

    before = build((1, CHANNELS, 5, 5), body)
    after = apply(prepare_graph(), before)
    assert not operators(after)["relax.nn.pad"]


def test_module_without_convolutions_keeps_its_operations():
    def body(emit, x):
        return emit(op.nn.relu(emit(op.matmul(x, Values().normal(4, 5)))))

    before = build((2, 4), body)
    assert operators(apply(prepare_graph(), before)) == operators(before)


def test_chain_over_two_blocks_is_not_torn_out_of_its_block():
    """The convolution's input is a variable of the first block, which the second does not see."""
    values, builder = Values(), relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4, 5, 5), "float32"))
    with builder.function("main", [x], pure=False):
        with builder.dataflow():
            y = builder.emit(op.nn.pad(builder.emit(op.nn.relu(x)), [0, 0, 0, 0, 1, 1, 1, 1]))
            y = builder.emit_output(op.nn.conv2d(y, values.normal(4, 4, 3, 3)))
        builder.emit(op.print(x, format="{}"))
        with builder.dataflow():
            z = builder.emit_output(batch_norm(builder.emit, values, y, 4))
        builder.emit_func_output(z)
    before = builder.get()
    after = prepare_graph()(before)
    relax.analysis.well_formed(after)
    counts = operators(after)
    assert counts["relax.nn.batch_norm"] == counts["relax.nn.pad"] == 0
    assert counts["relax.multiply"] == 1

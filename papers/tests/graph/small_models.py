# SPDX-License-Identifier: Apache-2.0
"""Small Relax models with what the graph search rewrites, or has to leave alone."""

import numpy as np

import tvm
from tvm import relax


def module(shapes, body, dtype="float32", attrs=None):
    """A module of one function; `body` gets an emitter and the parameters."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(s, dtype)) for i, s in enumerate(shapes)]
    with builder.function("main", params, attrs=attrs):
        with builder.dataflow():
            result = body(builder.emit, *params)
            many = isinstance(result, tuple)
            output = builder.emit_output(relax.Tuple(list(result)) if many else result)
        builder.emit_func_output(output)
    return builder.get()


class Weights:
    """Random constants."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __call__(self, *shape, dtype="float32"):
        return relax.const((self.rng.standard_normal(shape) / 2).astype(dtype))

    def positive(self, *shape):
        return relax.const(self.rng.uniform(0.5, 1.5, shape).astype("float32"))


def batch_norm(emit, w, x, channels):
    stats = [w.positive(channels), w(channels), w(channels), w.positive(channels)]
    norm = emit(relax.op.nn.batch_norm(x, *stats, axis=1, training=False))
    return emit(relax.TupleGetItem(norm, 0))


def network():
    """Batch norms, siblings, a residual, a transition with a pool, and a split."""
    w = Weights()

    def body(emit, x):
        op = relax.op
        y = emit(op.nn.conv2d(x, w(8, 3, 3, 3), padding=1))
        y = emit(op.nn.relu(batch_norm(emit, w, y, 8)))
        a = emit(op.nn.conv2d(y, w(8, 8, 1, 1)))
        b = emit(op.nn.conv2d(y, w(8, 8, 3, 3), padding=1))
        y = emit(op.nn.relu(emit(op.add(emit(op.add(a, b)), y))))
        y = emit(op.nn.avg_pool2d(emit(op.nn.conv2d(y, w(4, 8, 1, 1))), (2, 2), (2, 2)))
        halves = emit(op.split(y, 2, axis=1))
        left, right = (emit(relax.TupleGetItem(halves, i)) for i in range(2))
        return emit(op.concat([emit(op.nn.relu(left)), emit(op.nn.relu(right))], axis=1))

    return module([(1, 3, 8, 8)], body)


def repvgg_block(channels=8):
    """Three branches as trained: 3x3, 1x1 and the identity, each with its batch norm."""
    w = Weights()

    def body(emit, x):
        branches = [
            emit(relax.op.nn.conv2d(x, w(channels, channels, 3, 3), padding=1)),
            emit(relax.op.nn.conv2d(x, w(channels, channels, 1, 1))),
            x,
        ]
        a, b, c = (batch_norm(emit, w, branch, channels) for branch in branches)
        total = emit(relax.op.add(emit(relax.op.add(a, b)), c))
        return emit(relax.op.nn.relu(total))

    return module([(1, channels, 16, 16)], body)


def attention():
    """Projections of one input, heads, and products of transposed operands."""
    w = Weights()

    def body(emit, x):
        op = relax.op

        def heads(axes):
            projected = emit(op.add(emit(op.matmul(x, w(16, 16))), w(16)))
            return emit(op.permute_dims(emit(op.reshape(projected, (8, 4, 4))), axes))

        q, k, v = heads([1, 0, 2]), heads([1, 2, 0]), heads([1, 0, 2])
        scores = emit(op.multiply(emit(op.matmul(q, k)), relax.const(0.5)))
        mixed = emit(op.matmul(emit(op.nn.softmax(scores, axis=-1)), v))
        return emit(op.reshape(emit(op.permute_dims(mixed, [1, 0, 2])), (8, 16)))

    return module([(8, 16)], body)


def steps(count=6):
    """A recurrent network, unrolled: each step's input is multiplied by one weight."""
    w = Weights()

    def body(emit, *inputs):
        op, first, second = relax.op, w(8, 16), w(16, 16)
        state = emit(op.tanh(emit(op.matmul(inputs[0], first))))
        for each in inputs[1:]:
            now = emit(op.matmul(each, first))
            state = emit(op.tanh(emit(op.add(now, emit(op.matmul(state, second))))))
        return state

    return module([(1, 8)] * count, body)


def transition(into=64, out=32):
    """A 1x1 convolution that halves the channels, then a pool that quarters the image."""
    w = Weights()

    def body(emit, x):
        y = emit(relax.op.nn.conv2d(x, w(out, into, 1, 1)))
        return emit(relax.op.nn.avg_pool2d(y, (2, 2), (2, 2)))

    return module([(1, into, 28, 28)], body)


def weights_as_parameters(rows):
    """A product and a scale whose weights are parameters."""

    def body(emit, x, w, s):
        return emit(relax.op.multiply(emit(relax.op.matmul(x, w)), s))

    return module([(rows, 16), (16, 16), (16,)], body, attrs={"num_input": 1})


def norm_of_parameters(channels=8):
    """A convolution and its batch norm, whose weights and statistics are parameters."""

    def body(emit, x, weight, *statistics):
        y = emit(relax.op.nn.conv2d(x, weight, padding=1))
        norm = emit(relax.op.nn.batch_norm(y, *statistics, axis=1, training=False))
        return emit(relax.TupleGetItem(norm, 0))

    shapes = [(1, 3, 6, 6), (channels, 3, 3, 3), *[(channels,)] * 4]
    return module(shapes, body, attrs={"num_input": 1})


def run(mod, arrays):
    """Run a module as TVM compiles it."""
    machine = relax.VirtualMachine(
        relax.build(relax.get_pipeline("zero")(mod), tvm.target.Target("llvm")), tvm.cpu()
    )
    result = machine["main"](*map(tvm.runtime.tensor, arrays))
    single = isinstance(result, tvm.runtime.Tensor)
    return [result.numpy()] if single else [each.numpy() for each in result]


def inputs_of(mod):
    rng = np.random.default_rng(1)
    types = [param.ty for param in mod["main"].params]
    return [rng.standard_normal([int(e) for e in t.shape]).astype(str(t.dtype)) for t in types]


def check_outputs(before, after, tolerance=2e-6, least_spread=1e-3):
    """Equal outputs on the virtual machine; both numbers are relative to the largest output.

    Outputs that are all alike would hide a wrong graph.
    """
    relax.analysis.well_formed(after)
    arrays = inputs_of(before)
    for expected, actual in zip(run(before, arrays), run(after, arrays), strict=True):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        largest = np.abs(expected).max()
        assert np.isfinite(largest) and expected.std() > least_spread * largest
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * largest)

# SPDX-License-Identifier: Apache-2.0
"""The tests' own interpreter, against kernels that TVM compiles."""

import numpy as np
from graphs import Values, batch_norm, build, inputs_of
from numpy_relax import evaluate

import tvm
from tvm import relax


def network(emit, x):
    values, op = Values(), relax.op
    y = emit(op.nn.conv2d(x, values.normal(6, 2, 3, 3), (2, 1), (1, 0, 2, 1), 1, groups=2))
    y = emit(op.nn.relu(batch_norm(emit, values, y, 6)))
    y = emit(op.nn.conv2d(y, values.normal(4, 6, 2, 2), dilation=2, padding=1))
    most = emit(op.nn.max_pool2d(y, (2, 2), (2, 2), (1, 1)))
    mean = emit(op.nn.avg_pool2d(y, (2, 2), (2, 2), (1, 1), count_include_pad=True))
    inner = emit(op.nn.avg_pool2d(y, (2, 2), (2, 2), (1, 1)))
    y = emit(op.concat([most, mean, inner], axis=1))
    y = emit(op.permute_dims(emit(op.clip(y, -1.0, 2.0)), [0, 2, 3, 1]))
    y = emit(op.nn.conv2d(y, values.normal(1, 1, 12, 5), data_layout="NHWC", kernel_layout="HWIO"))
    y = emit(op.nn.pad(y, [0, 0, 1, 0, 0, 1, 0, 0], pad_value=0.5))
    return emit(op.mean(y, axis=[1, 2]))


def test_interpreter_agrees_with_compiled_kernels():
    mod = build((1, 4, 9, 10), network)
    inputs = inputs_of(mod)
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    compiled = machine["main"](*[tvm.runtime.tensor(array) for array in inputs]).numpy()
    np.testing.assert_allclose(evaluate(mod, *inputs), compiled, rtol=1e-4, atol=1e-5)

# SPDX-License-Identifier: Apache-2.0
"""Products of bytes and packed weights, block by block: exact sums, beside NumPy."""

import numpy as np
import pytest

import tvm
from tvm import relax
from tvm.target import Target
from tvm_droplet_ms.design_space.dot_products.find_dot import VNNI, has_features
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.model.kernels.weights.packed_products import byte_product
from tvm_droplet_ms.model.kernels.weights.packing import Scaled, pack
from tvm_droplet_ms.tuning.graph_passes import graph_passes

needs_vnni = pytest.mark.skipif(
    not has_features(host_target(), *VNNI), reason="this CPU has no AVX512_VNNI"
)
RNG = np.random.default_rng(0)


def matrix(depth, columns, bits, block):
    """Random weights with the largest and the least number."""
    numbers = RNG.integers(0, 1 << bits, (depth, columns))
    numbers[0, :2] = 0, (1 << bits) - 1
    zeros = RNG.integers(0, 1 << bits, (depth // block, columns)).astype("float32")
    scales = RNG.standard_normal((depth // block, columns)).astype("float32")
    return Scaled(numbers, np.repeat(zeros, block, 0), np.repeat(scales, block, 0))


def rounded(rows, depth, block):
    """Bytes with the largest magnitudes, and a scale for each block."""
    numbers = RNG.integers(-127, 128, (rows, depth // block, block))
    numbers[0, 0, :] = 127
    numbers[-1, -1, :] = -127
    return numbers, RNG.random((rows, depth // block)).astype("float32")


@needs_vnni
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [1, 3, 7, 10])
@pytest.mark.parametrize(("bits", "block"), [(2, 32), (4, 16), (4, 64), (8, 32)])
def test_blocks_are_summed_up_exactly_and_scaled(bits, block, rows, threads):
    depth, columns = 192, 80
    weights = matrix(depth, columns, bits, block)
    packed = pack(weights, block)
    numbers, of_blocks = rounded(rows, depth, block)
    arrays = [numbers.reshape(rows, depth).astype("int8"), of_blocks]
    arrays += [numbers.sum(-1).astype("float32"), packed.words, packed.scales, packed.zeros]
    types = [relax.TensorType(each.shape, str(each.dtype)) for each in arrays]
    kernel = byte_product(types, packed.bits).with_attr("global_symbol", "main")
    library = tvm.compile(kernel, Target({**host_target().export(), "num-cores": threads}))
    result = tvm.runtime.empty((rows, columns), "float32")
    library["main"](*map(tvm.runtime.tensor, arrays), result)
    whole = (numbers * of_blocks[..., None].astype("float64")).reshape(rows, depth)
    wanted = whole @ ((weights.numbers - weights.zeros) * weights.scales.astype("float64"))
    np.testing.assert_allclose(result.numpy(), wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


def rounded_product(rows, depth=128, columns=72, block=32):
    """A graph whose rows are rounded in blocks."""
    weights = matrix(depth, columns, 4, block)
    op, builder = relax.op, relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, depth), "float32"))
    with builder.function("main", [x], attrs={"num_input": 1}):
        with builder.dataflow():
            emit = builder.emit
            blocks = emit(op.reshape(x, (rows, depth // block, block)))
            scales = emit(op.max(emit(op.abs(blocks)), axis=[-1], keepdims=True))
            scales = emit(op.divide(scales, relax.const(127.0)))
            numbers = emit(op.round(emit(op.divide(blocks, scales))))
            again = emit(op.reshape(emit(op.multiply(numbers, scales)), (rows, depth)))
            matrix_of = emit(op.astype(relax.const(weights.numbers.astype("uint8")), "float32"))
            matrix_of = emit(op.subtract(matrix_of, relax.const(weights.zeros)))
            matrix_of = emit(op.multiply(matrix_of, relax.const(weights.scales)))
            y = builder.emit_output(op.matmul(again, matrix_of))
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize("cpu", ["cascadelake", "skylake-avx512"])
@pytest.mark.parametrize("rows", [2, 9])
def test_bytes_are_multiplied_where_the_cpu_has_vnni(cpu, rows):
    """Without it, a few rows are multiplied as floats, and many by weights of float32."""
    mod = rounded_product(rows)
    target = Target({"kind": "llvm", "mcpu": cpu, "num-cores": 1})
    with target:
        for _, step in graph_passes(target):
            mod = step(mod)
    assert ("byte_product" in mod.script()) == (cpu == "cascadelake")
    assert ("narrow_product" in mod.script()) == (cpu != "cascadelake" and rows == 2)

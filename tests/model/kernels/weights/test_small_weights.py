# SPDX-License-Identifier: Apache-2.0
"""Kernels whose weights have 7 bits are marked, where all layers that share them have such."""

import numpy as np
import pytest

from tvm import relax
from tvm.target import Target
from tvm.tirx import PrimFunc
from tvm_droplet_ms.design_space.dot_products.dot_intrinsics import SMALL_WEIGHTS
from tvm_droplet_ms.tuning.compile.lowering import lower

AVX2 = Target({"kind": "llvm", "mcpu": "haswell", "num-cores": 1})
VNNI = Target({"kind": "llvm", "mcpu": "cascadelake", "num-cores": 1})


def marks(magnitudes, target=AVX2):
    """The marks of the products of a model whose layers have weights up to these magnitudes."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 16), "uint8"))
    random = np.random.default_rng(0)
    with builder.function("main", [x]):
        with builder.dataflow():
            data = x
            for low, high in magnitudes:
                weight = random.integers(low, high + 1, (16, 16))
                weight[0, :2] = low, high
                weight = relax.const(weight.astype("int8"))
                data = builder.emit(relax.op.matmul(data, weight, out_dtype="int32"))
                data = builder.emit(relax.op.astype(data, "uint8"))
            output = builder.emit_output(data)
        builder.emit_func_output(output)
    lowered = lower(builder.get(), target)
    kernels = [each for _, each in lowered.functions_items() if isinstance(each, PrimFunc)]
    found = [[int(n) for n in (each.attrs or {}).get(SMALL_WEIGHTS, ())] for each in kernels]
    assert len(kernels) == 1
    return found[0]


@pytest.mark.parametrize(
    ("magnitudes", "marked"),
    [
        ([(-64, 64)], True),
        ([(-64, 65)], False),
        ([(-65, 64)], False),
        ([(-128, 3)], False),
        ([(-64, 64), (-3, 5)], True),
        ([(-64, 64), (-127, 5)], False),
        ([(-127, 64), (-3, 5)], False),
    ],
)
def test_all_weights_must_have_seven_bits(magnitudes, marked):
    assert marks(magnitudes) == ([1] if marked else [])


def test_instructions_that_need_no_such_weights_have_no_mark():
    assert marks([(-64, 64)], VNNI) == []

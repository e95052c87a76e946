# SPDX-License-Identifier: Apache-2.0
"""Vectorized functions against SciPy in double precision."""

import re

import numpy as np
import pytest
from graphs import build
from kernel_chain import tir_of
from scipy import special

import tvm
from tvm import relax
from tvm.target import Target
from tvm_droplet_ms.tuning.compile.finishing_passes import keep_nan
from tvm_droplet_ms.tuning.compile.lowering import lower

TARGET = Target({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 1})
HOST = Target("llvm")

REFERENCES = {
    "erf": special.erf,
    "exp": np.exp,
    "nn.gelu": lambda x: x * special.ndtr(x),
    "nn.gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "nn.log_softmax": lambda x: special.log_softmax(x, axis=-1),
    "nn.silu": lambda x: x * special.expit(x),
    "nn.softmax": lambda x: special.softmax(x, axis=-1),
    "sigmoid": special.expit,
    "tanh": np.tanh,
}


def module(name, dtype="float32"):
    operator = relax.op
    for part in name.split("."):
        operator = getattr(operator, part)
    return build((16, 64), lambda emit, x: emit(operator(x)), dtype=dtype)


@pytest.mark.parametrize("name", REFERENCES)
def test_values_are_those_of_double_precision(name):
    x = np.linspace(-20, 20, 16 * 64).reshape(16, 64).astype("float32")
    executable = tvm.compile(lower(module(name), HOST), HOST)
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
    expected = REFERENCES[name](x.astype("float64"))
    scale = np.maximum(np.abs(expected), 1.0)
    assert np.max(np.abs(found - expected) / scale) < 2e-6


def values_of(mod, x):
    executable = tvm.compile(keep_nan()(lower(mod, HOST)), HOST)
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()


def test_logarithms_of_all_magnitudes_signs_and_infinities():
    positive = np.arange(1, 0x7F800000, 2_081_017, dtype="uint32").view("float32")
    special_bits = [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0xBF800000, 0x3F800000]
    edges = [1, 0x7FFFFF, 0x800000, 0x3F3504F2, 0x3F3504F3, 0x3F3504F4, 0x3F7FFFFF, 0x3F800001]
    odd = np.array(special_bits + edges, "uint32").view("float32")
    x = np.resize(np.concatenate([odd, positive]), (16, 64))
    with np.errstate(all="ignore"):
        expected = np.log(x.astype("float64"))
    np.testing.assert_allclose(values_of(module("log"), x), expected, rtol=1e-7)
    assert operators(lower(module("log"), TARGET, is_reference=True)) == {"log"}
    assert not operators(lower(module("log"), TARGET))


@pytest.mark.parametrize("exponent", [3.0, 2.5])
def test_a_cube_is_a_product(exponent):
    power = relax.op.power
    mod = build((16, 64), lambda emit, x: emit(power(x, relax.const(exponent, "float32"))))
    x = np.linspace(-3, 3, 16 * 64).reshape(16, 64).astype("float32")
    x[0, :5] = np.inf, -np.inf, np.nan, -0.0, 1e-13
    with np.errstate(all="ignore"):
        expected = x.astype("float64") ** exponent
    np.testing.assert_allclose(values_of(mod, x), expected.astype("float32"), rtol=4e-7)
    assert operators(lower(mod, TARGET)) == (set() if exponent == 3 else {"pow"})


def test_log_softmax_of_masked_large_and_missing_numbers():
    x = np.linspace(-90, 90, 16 * 64).reshape(16, 64).astype("float32")
    x[:, ::3] = -np.inf
    x[1], x[2], x[3], x[4, 5], x[5, 7] = 3e38, -3e38, x[3] * 1e30, np.nan, np.inf
    x[6] = -np.inf
    x[7, 1] = 1e6
    with np.errstate(all="ignore"):
        expected = special.log_softmax(x.astype("float64"), axis=-1)
    expected[[5, 6]] = np.nan  # an infinity less an infinity
    found = values_of(module("nn.log_softmax"), x)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", REFERENCES)
def test_no_function_of_the_c_library_is_called(name):
    assert operators(lower(module(name), TARGET, is_reference=True))
    assert not operators(lower(module(name), TARGET))


def test_half_precision_is_left_to_tvm():
    mod = lower(module("exp", "float16"), TARGET)
    assert operators(mod) == {"exp"}


def operators(mod):
    """The names of TIR's intrinsics in a module's kernels, by their text."""
    text = "".join(function.script() for function in tir_of(mod))
    return set(re.findall(r"\bT\.(exp|erf|log|pow|tanh|sigmoid)\(", text))

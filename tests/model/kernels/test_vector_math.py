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


def test_log_softmax_of_masked_large_and_missing_numbers():
    x = np.linspace(-90, 90, 16 * 64).reshape(16, 64).astype("float32")
    x[:, ::3] = -np.inf
    x[1], x[2], x[3], x[4, 5], x[5, 7] = 3e38, -3e38, x[3] * 1e30, np.nan, np.inf
    x[6] = -np.inf
    x[7, 1] = 1e6
    with np.errstate(all="ignore"):
        expected = special.log_softmax(x.astype("float64"), axis=-1)
    expected[[5, 6]] = np.nan  # an infinity less an infinity
    mod = lower(module("nn.log_softmax"), HOST)
    executable = tvm.compile(keep_nan()(mod), HOST)
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
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
    return set(re.findall(r"\bT\.(exp|erf|tanh|sigmoid)\(", text))

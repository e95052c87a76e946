# SPDX-License-Identifier: Apache-2.0
"""Kernels that LLVM's loop vectorizer compiles to something else are compiled without it."""

import numpy as np

import tvm
from tvm.script import tirx as T
from tvm.target import Target
from tvm_droplet_ms.compat.loop_vectorizer import without_loop_vectorizer
from tvm_droplet_ms.measure import build_scheduled
from tvm_droplet_ms.tuning.compile.kernel_objects import compile_object

TARGET = Target({"kind": "llvm", "num-cores": 2, "mcpu": "x86-64-v3"})
WEIGHTS = np.random.default_rng(0).standard_normal(144).astype("float32")
EXPECTED = np.tile(WEIGHTS.reshape(36, 4).sum(0, dtype="float64"), 16)


@T.prim_func(s_tir=True)
def columns(w: T.Buffer((144,), "float32"), out: T.Buffer((64,), "float32")):
    """Sums of columns, 16 times one after the other."""
    for i in range(64):
        out[i] = T.float32(0)
    for c, r, q in T.grid(4, 3, 3):
        for s in range(64):
            out[s] = out[s] + w[c * 36 + r * 12 + q * 4 + s % 4]


MOD = tvm.IRModule({"main": columns})


def run(module):
    out = tvm.runtime.empty((64,), "float32")
    module["main"](tvm.runtime.tensor(WEIGHTS), out)
    return out.numpy()


def test_a_built_candidate_is_right():
    np.testing.assert_allclose(run(build_scheduled(MOD, TARGET)), EXPECTED, rtol=1e-4, atol=1e-4)


def test_an_object_of_a_model_is_right(tmp_path):
    path = tmp_path / "kernel.o"
    compile_object(MOD, TARGET, str(path))
    library = tmp_path / "kernel.so"
    tvm.support.cc.create_shared(str(library), [str(path)])
    found = run(tvm.runtime.load_module(str(library)))
    np.testing.assert_allclose(found, EXPECTED, rtol=1e-4, atol=1e-4)


def test_a_target_keeps_its_options():
    target = Target({"kind": "llvm", "mcpu": "x86-64-v3", "cl-opt": ["-unroll-count:uint=2"]})
    options = without_loop_vectorizer(target).export()
    assert list(options["cl-opt"]) == ["-unroll-count:uint=2", "-vectorize-loops:bool=0"]
    assert options["mcpu"] == "x86-64-v3"
    cuda = Target({"kind": "cuda", "arch": "sm_90"})
    assert without_loop_vectorizer(cuda) is cuda

# SPDX-License-Identifier: Apache-2.0
"""The libraries of candidates."""

import tempfile

import numpy as np

import tvm
from tvm import te
from tvm.target import Target
from tvm_droplet_ms.measure import build_scheduled, export_shared_library


def test_a_candidate_is_linked_with_the_functions_of_a_final_library(tmp_path, monkeypatch):
    """Without the mathematical library, names are bound to its oldest, slow versions."""
    x = te.placeholder((16,), name="x")
    y = te.compute((16,), lambda i: te.exp(x[i]) + te.erf(x[i]), name="y")
    mod = tvm.IRModule({"main": te.create_prim_func([x, y])})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = export_shared_library(build_scheduled(mod, Target("llvm")))
    with open(path, "rb") as library:
        content = library.read()
    assert b"libm.so" in content and b"libstdc++" not in content
    values = np.linspace(-2, 2, 16, dtype=np.float32)
    result = tvm.runtime.tensor(np.zeros(16, np.float32))
    tvm.runtime.load_module(path)["main"](tvm.runtime.tensor(values), result)
    assert np.all(np.diff(result.numpy()) > 0)
    np.testing.assert_allclose(result.numpy()[-1], np.exp(2) + 0.9953223, rtol=1e-6)

# SPDX-License-Identifier: Apache-2.0
"""Kernels and targets that are refused in a sentence before anything is built."""

import pytest

from tvm import te
from tvm.script import tirx as T
from tvm_droplet_ms.kernel_tuning import KernelError, tune_kernel
from tvm_droplet_ms.kernel_tuning import measuring as kernel_measuring
from tvm_droplet_ms.kernel_tuning.faults import nothing_measured
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.session.target import cpu_target


@T.prim_func(s_tir=True)
def without_blocks(a: T.handle, b: T.handle) -> None:
    A = T.match_buffer(a, (8,), "float32")
    B = T.match_buffer(b, (8,), "float32")
    for i in range(8):
        B[i] = A[i]


def rows(extent, reduced=None):
    a = te.placeholder((extent, 10), "float32", name="a")
    if reduced is None:
        return te.create_prim_func([a, te.compute((extent, 10), lambda i, j: a[i, j], name="c")])
    k = te.reduce_axis((0, reduced), "k")
    total = te.compute((extent,), lambda i: te.sum(a[i, k], k), name="c")
    return te.create_prim_func([a, total])


@pytest.mark.parametrize(
    ("func", "words"),
    [
        (rows(0), r"argument 'a' has the shape \[0, 10\]: expected extents of at least 1"),
        (rows(-1), r"argument 'a' has the shape \[-1, 10\]: expected extents of at least 1"),
        (rows(4, 0), "the kernel has a loop with an extent of 0: there is nothing to compute"),
        (without_blocks, "the kernel has no blocks, .* there is nothing to schedule"),
    ],
)
def test_what_has_nothing_to_tune_is_refused(func, words, tmp_path):
    with pytest.raises(KernelError, match=words):
        tune_kernel(func, trials=2, work_dir=tmp_path / "logs", progress=None)
    assert not (tmp_path / "logs").exists()


FOREIGN = {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}
UNKNOWN = {"kind": "llvm", "mcpu": "no-such-cpu"}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (FOREIGN, "expected the same architecture. ms.tune_tir with .*FleetRunner and "),
        (UNKNOWN, "has the mcpu 'no-such-cpu', which LLVM does not know for "),
    ],
)
def test_a_target_that_cannot_be_built_for_is_refused(target, words, tmp_path, monkeypatch):
    """The linker refused it, once for each trial, and an unknown CPU got code for any CPU."""
    if cpu_target("llvm", 1).attrs["mtriple"].startswith("aarch64"):
        target = target | ({"mtriple": "x86_64-linux-gnu"} if "mtriple" in target else {})
    monkeypatch.setattr(kernel_measuring, "fast_measure", lambda *_, **__: pytest.fail("it builds"))
    with pytest.raises(KernelError, match=words):
        tune_kernel(rows(4), target=target, trials=2, work_dir=tmp_path / "logs")
    assert not (tmp_path / "logs").exists()
    with pytest.raises(ModelError, match=words):
        cpu_target(target, 1)


def test_crashes_on_made_up_values_name_the_remedy(tmp_path):
    def words(*reasons):
        failures = dict.fromkeys(reasons, 1)
        error = nothing_measured("k", ["a", "rows"], "llvm", tmp_path, 0, failures, "")
        return str(error)

    crash = "PromptRunner: its process was ended by SIGSEGV"
    remedy = "inputs={name: array}, or --inputs FILE.npz, by the names a, rows"
    assert remedy in words(crash)
    assert remedy not in words(crash, "LLVM: no such intrinsic")

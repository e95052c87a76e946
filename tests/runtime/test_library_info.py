# SPDX-License-Identifier: Apache-2.0
"""The description in a library."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tvm_droplet_ms.runtime import InferenceSession, SessionError
from tvm_droplet_ms.runtime.library_info import append_info, flags_of_features, read_info
from tvm_droplet_ms.runtime.shapes import Bucket, Buckets

from .conftest import info_of


def test_written_and_read_and_replaced(dense_library: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    shutil.copy(dense_library, path)
    size = path.stat().st_size
    full = info_of(
        [((1, 16), "float32")],
        [((1, 8), "float32")],
        buckets=Buckets((Bucket(((1, 16),), ((1, 8),)), Bucket(((2, 16),), ((2, 8),)))),
        functions=("main", "main_1"),
        threads=2,
        why_not_padded="",
        written=(0,),
        aliases=None,
        cpu_flags=("avx2",),
        target="{}",
        versions={"apache-tvm": "0.27"},
    )
    before = read_info(path)
    append_info(path, full)
    assert read_info(path) == full
    append_info(path, before)
    assert read_info(path) == before and path.stat().st_size == size


def test_a_cpu_that_lacks_something_refuses_the_library(dense_library: Path, tmp_path: Path):
    path = tmp_path / "model.so"
    shutil.copy(dense_library, path)
    append_info(path, replace(read_info(path), cpu_flags=("sse2", "quantum")))
    with pytest.raises(SessionError, match="tuned for a CPU with quantum, which this one lacks"):
        InferenceSession(path)


def test_linux_and_llvm_name_extensions_otherwise() -> None:
    assert flags_of_features({"avx512vnni", "amx-bf16", "sse2"}) == ("avx512_vnni", "amx_bf16")


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"absent.so' cannot be read \(No such file"):
        InferenceSession(tmp_path / "absent.so")
    path = tmp_path / "other.so"
    for content in (b"", b"text", bytes(range(64))):
        path.write_bytes(content)
        with pytest.raises(SessionError, match="other.so' does not describe itself"):
            InferenceSession(path)
    append_info(path, info_of([((1,), "float32")], [((1,), "float32")]))
    with pytest.raises(SessionError, match=r"other.so' cannot be loaded \("):
        InferenceSession(path)
    assert np.frombuffer(path.read_bytes()[:64], np.uint8).tolist() == list(range(64))

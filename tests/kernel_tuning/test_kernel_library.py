# SPDX-License-Identifier: Apache-2.0
"""Libraries of several kernels in one process, and in one directory."""

import gc
import os
import pickle
from functools import partial

import numpy as np
import pytest
from made_up_measuring import quick_tune

import tvm
from tvm import te
from tvm_droplet_ms.runtime.library_file import LibraryFile
from tvm_droplet_ms.tuning.kernel import KernelError

TWOS = np.full((16, 16), 2.0, "float32")


def kernel(operation):
    a = te.placeholder((16, 16), name="A")
    return te.create_prim_func([a, te.compute((16, 16), lambda i, j: operation(a[i, j]), name="C")])


ADD_ONE = kernel(lambda value: value + np.float32(1))
TIMES_TEN = kernel(lambda value: value * np.float32(10))
tune = partial(quick_tune, trials=2)


def files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def run(library):
    tensors = [tvm.runtime.tensor(array) for array in (TWOS, np.zeros_like(TWOS))]
    library["main"](*tensors)
    return tensors[1].numpy()


def test_a_kernel_is_not_tuned_in_the_directory_of_a_model(tmp_path, measuring):
    (tmp_path / "model.so").write_bytes(b"a model")
    with pytest.raises(KernelError, match="holds the executable of a model.*pass another work_dir"):
        tune(ADD_ONE, tmp_path)
    assert (tmp_path / "model.so").read_bytes() == b"a model"


def test_another_kernel_does_not_overwrite_the_result_of_the_first(tmp_path, measuring):
    first = tune(ADD_ONE, tmp_path, name="plus")
    before = files(tmp_path)
    with pytest.raises(KernelError, match="result of another kernel, 'plus', .*another work_dir"):
        tune(TIMES_TEN, tmp_path)
    assert files(tmp_path) == before
    assert (first(TWOS, np.zeros_like(TWOS))[1] == 3.0).all()
    # The name in messages is no part of the kernel.
    assert tune(ADD_ONE, tmp_path, name="sum").known_trials == first.trials


def test_a_result_runs_and_exports_its_own_library(tmp_path, measuring):
    first = tune(ADD_ONE, tmp_path / "a")
    assert (first(TWOS, np.zeros_like(TWOS))[1] == 3.0).all()
    second = tune(TIMES_TEN, tmp_path / "b")
    # As a later run puts its library into the place of this one.
    os.replace(second.library, first.library)
    assert (first(TWOS, np.zeros_like(TWOS))[1] == 3.0).all()
    first.export(tmp_path / "first.so")
    second.export(tmp_path / "second.so")
    assert (run(tvm.runtime.load_module(str(tmp_path / "first.so"))) == 3.0).all()
    assert (run(tvm.runtime.load_module(str(tmp_path / "second.so"))) == 20.0).all()


def test_a_library_file_closes_its_descriptor_and_can_be_sent(tmp_path):
    path = tmp_path / "library.so"
    path.write_bytes(b"text")
    file = LibraryFile(path)
    pickle.loads(pickle.dumps(file)).copy(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"text"
    descriptor = file._descriptor
    os.fstat(descriptor)
    del file
    gc.collect()
    with pytest.raises(OSError):
        os.fstat(descriptor)

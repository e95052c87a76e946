# SPDX-License-Identifier: Apache-2.0
"""Lookup of a search's prior by name."""

from pathlib import Path

import numpy as np
import pytest
import tvm_ffi
from conformance.workloads import LLVM, OTHER_LLVM, make_context, matmul

from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.target import Target
from tvm_droplet_ms.cost_model import ModelFileError, TransferModel, pretrained_model
from tvm_droplet_ms.cost_model.found_by_name import find_prior
from tvm_droplet_ms.cost_model.pretrained_model import PretrainedModel


def candidates() -> list[ms.MeasureCandidate]:
    made = []
    for factor in (2, 4, 8, 16):
        schedule = Schedule(matmul(32, 32, 32))
        i, _, _ = schedule.get_loops(schedule.get_sblock("C"))
        schedule.split(i, [None, factor])
        arguments = ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
        made.append(ms.MeasureCandidate(schedule, arguments))
    return made


def context() -> ms.TuneContext:
    return make_context(ms.search_strategy.ReplayTrace(), matmul(32, 32, 32))


def test_global_function_returns_same_model():
    """The object returned through TVM's FFI is a cost model that predicts and learns."""
    found = tvm_ffi.get_global_func("tvm_droplet_ms.find_prior")("auto", LLVM)
    assert isinstance(found, ms.cost_model.CostModel)
    expected = find_prior("auto", LLVM).predict(context(), candidates())
    assert len(set(expected)) > 1
    np.testing.assert_array_equal(found.predict(context(), candidates()), expected)
    results = [RunnerResult([secs], None) for secs in (4.0, 3.0, 2.0, 1.0)]
    found.update(context(), candidates(), results)
    assert not np.array_equal(found.predict(context(), candidates()), expected)


def test_each_search_gets_its_own_prior():
    """Both searches share the file's model, but not their measurements."""
    first, second = find_prior("auto", LLVM), find_prior("auto", LLVM)
    expected = second.predict(context(), candidates())
    results = [RunnerResult([secs], None) for secs in (4.0, 3.0, 2.0, 1.0)]
    first.update(context(), candidates(), results)
    assert not np.array_equal(first.predict(context(), candidates()), expected)
    np.testing.assert_array_equal(second.predict(context(), candidates()), expected)


def test_prior_file_is_read_once(monkeypatch: pytest.MonkeyPatch):
    read = []
    load = PretrainedModel.load

    def counted(path: Path) -> PretrainedModel:
        read.append(path)
        return load(path)

    monkeypatch.setattr(PretrainedModel, "load", staticmethod(counted))
    pretrained_model._load_once.cache_clear()
    for target in (LLVM, OTHER_LLVM, LLVM):
        find_prior("auto", target)
    TransferModel.pretrained(OTHER_LLVM)
    assert [path.name for path in read] == ["llvm.model", "llvm_avx2.model"]


def test_prior_is_none_for_unsupported_target():
    find = tvm_ffi.get_global_func("tvm_droplet_ms.find_prior")
    assert find("auto", Target({"kind": "opencl"})) is None


def test_prior_accepts_path_of_model_file(tmp_path: Path):
    path = Path(pretrained_model.__file__).parent / "pretrained" / "llvm.model"
    found = find_prior(str(path), LLVM)
    expected = find_prior("auto", LLVM)
    np.testing.assert_array_equal(
        found.predict(context(), candidates()), expected.predict(context(), candidates())
    )
    (tmp_path / "bad.model").write_bytes(b"none")
    find = tvm_ffi.get_global_func("tvm_droplet_ms.find_prior")
    for prior in (str(tmp_path / "bad.model"), str(tmp_path / "missing.model"), "xgb"):
        with pytest.raises(ModelFileError, match=f"{Path(prior).name} is no cost model"):
            find_prior(prior, LLVM)
        with pytest.raises(ModelFileError, match=f"{Path(prior).name} is no cost model"):
            find(prior, LLVM)

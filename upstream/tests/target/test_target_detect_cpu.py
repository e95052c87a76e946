# SPDX-License-Identifier: Apache-2.0
"""The target of the host's CPU"""

# pylint: disable=missing-function-docstring

import pytest

import tvm
import tvm.testing
from tvm.target import Target, detect_target
from tvm.target.codegen import llvm_get_cpu_features
from tvm.testing import env

pytestmark = pytest.mark.skipif(not env.has_llvm(), reason="need llvm")


def _pretend(monkeypatch, **answers):
    """Have LLVM's functions that describe the host answer something else."""

    def get_global_func(name, allow_missing=False):
        function = name.rsplit(".", 1)[-1]
        if function not in answers:
            return tvm.get_global_func(name, allow_missing=allow_missing)
        return None if answers[function] is None else lambda: answers[function]

    monkeypatch.setattr(detect_target, "get_global_func", get_global_func)


def _features(target: Target) -> set[str]:
    return {str(name) for name in llvm_get_cpu_features(target)}


def _zen4(monkeypatch, features):
    _pretend(
        monkeypatch,
        GetDefaultTargetTriple="x86_64-unknown-linux-gnu",
        GetHostCPUName="znver4",
        GetHostCPUFeatures=features,
    )
    return Target.from_device("cpu")


def test_detected_target_has_what_the_host_offers():
    offered = tvm.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")()
    absent = {str(name) for name, is_offered in offered.items() if not is_offered}
    assert not absent & _features(Target.from_device("cpu"))


def test_hidden_features_are_turned_off(monkeypatch):
    target = _zen4(monkeypatch, {"avx2": True, "avx512f": False, "avx512vl": False, "amx": False})
    # Of those that are not offered, the CPU has no AMX.
    assert list(target.attrs["mattr"]) == ["-avx512f", "-avx512vl"]
    assert "avx2" in _features(target)
    # What builds on AVX-512 is turned off with it.
    assert not [name for name in _features(target) if name.startswith("avx512")]


@pytest.mark.parametrize("features", [{"avx2": True, "avx512f": True}, {}, None])
def test_target_stays_as_it_is_where_nothing_is_hidden(monkeypatch, features):
    target = _zen4(monkeypatch, features)
    assert "mattr" not in target.attrs
    assert "avx512f" in _features(target)


if __name__ == "__main__":
    tvm.testing.main()

# SPDX-License-Identifier: Apache-2.0
"""The targets that single kernels are tuned for: refusals, without a card."""

import pytest

from tvm.target import Target
from tvm_droplet_ms.session import cuda
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.session.target import kernel_target, runs_on

H100 = "nvidia/nvidia-h100"
NO_DRIVER = "libcuda.so.1: cannot open shared object file: No such file or directory"


@pytest.fixture
def card(monkeypatch):
    """As if there were a device: its target, which a test may change."""
    own = dict(Target(H100).export())

    def made_up(_device):
        return Target(own)

    monkeypatch.setattr(cuda, "why_no_runtime", lambda: "")
    monkeypatch.setattr(cuda, "why_no_device", lambda: "")
    monkeypatch.setattr(cuda, "device_name", lambda: "a card")
    monkeypatch.setattr(cuda.Target, "from_device", staticmethod(made_up))
    return own


@pytest.mark.parametrize(
    ("target", "here", "words"),
    [
        ("cuda", True, f"'cuda' asks this machine's CUDA device, .* is not loaded: {NO_DRIVER}$"),
        (H100, True, f"needs a CUDA device, and .* runtime is not loaded: {NO_DRIVER}$"),
        (H100, False, f"needs TVM's CUDA runtime on this machine too, .*: {NO_DRIVER}$"),
        ("opencl", True, "of kind opencl: .* expected the kind llvm or cuda$"),
        ("abacus", True, "'abacus' is not known to TVM"),
    ],
)
def test_without_a_driver_one_sentence_says_so(target, here, words, monkeypatch):
    monkeypatch.setattr(cuda, "why_no_runtime", lambda: NO_DRIVER)
    with pytest.raises(ModelError, match=words):
        kernel_target(target, 1, here=here)


def test_a_device_tells_its_target(card):
    assert kernel_target("cuda", 1).attrs["max_threads_per_block"] == 1024
    assert kernel_target(H100, 1).attrs["arch"] == "sm_90a"


def test_limits_that_are_missing_are_named(card):
    bare = {"kind": "cuda", "arch": "sm_90"}
    words = "lacks max_threads_per_block and max_shared_memory_per_block: pass "
    with pytest.raises(ModelError, match=words + '"cuda", which asks .* as nvidia/nvidia-a100'):
        kernel_target(bare, 1)
    # Servers are not asked.
    for target in (bare, "cuda"):
        with pytest.raises(ModelError, match=words + "one that has them, such as nvidia/nvidia-a"):
            kernel_target(target, 1, here=False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arch": "sm_80"}, "has the arch sm_90a, .*, a card, of sm_80: pass "),
        ({"arch": "sm_100"}, "has the arch sm_90a, .* of sm_100: pass "),
        ({"max_shared_memory_per_block": 1024}, "has max_shared_memory_per_block = 49152, where "),
    ],
)
def test_a_target_beyond_the_device_is_refused(card, changes, words):
    card.update(changes)
    with pytest.raises(ModelError, match=words):
        kernel_target(H100, 1)


def test_the_device_type_of_a_target():
    assert [runs_on(Target(name)) for name in ("llvm", H100)] == ["cpu", "cuda"]

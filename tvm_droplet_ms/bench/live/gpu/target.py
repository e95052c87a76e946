# SPDX-License-Identifier: Apache-2.0
"""The target of the GPU run."""

from typing import Any


def gpu_target(name: str) -> Any:
    """The target of a name; "device" asks the card for its limits.

    Raises ``RuntimeError`` if "device" is asked for and no CUDA device answers.
    """
    import tvm
    from tvm.target import Target

    if name != "device":
        return Target(name)
    if not tvm.runtime.enabled("cuda") or not tvm.cuda(0).exist:
        raise RuntimeError(
            "TVM's CUDA runtime found no device: libcudart.so.13 and libcuda.so.1 are to be on "
            "LD_LIBRARY_PATH, with a driver of CUDA 13"
        )
    return Target.from_device(tvm.cuda(0))

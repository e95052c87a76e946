# SPDX-License-Identifier: Apache-2.0
"""Times cuBLAS and cuDNN through PyTorch: reads names of workloads, answers a line for each.

A process of its own, so that PyTorch's libraries and TVM's do not meet in one.
"""

import json
import sys
from typing import Any

from .workloads import WORKLOADS, inputs

CALLS = 100


def main() -> None:
    """Answer ``{"seconds": ...}`` or ``{"error": ...}`` for each name that is read."""
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"seconds": time_library(line.strip())}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), flush=True)


def time_library(name: str) -> float:
    """Seconds of a call, the mean of 100 after ten, by CUDA's events; float32 without TF32.

    The convolution gets its input in NHWC ("channels last"), as the kernels do.
    """
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    data, weight = (torch.from_numpy(value).cuda() for value in inputs(name))
    if WORKLOADS[name].function == "matmul":

        def call() -> Any:
            return torch.matmul(data, weight)
    else:
        padding = WORKLOADS[name].arguments[7]
        image = data.permute(0, 3, 1, 2)  # NHWC in memory: what PyTorch calls channels last.
        kernel = weight.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)

        def call() -> Any:
            return torch.nn.functional.conv2d(image, kernel, padding=padding)

    for _ in range(10):
        call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(CALLS):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3 / CALLS


if __name__ == "__main__":
    main()

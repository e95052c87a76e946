# SPDX-License-Identifier: Apache-2.0
"""Times cuBLAS and cuDNN through PyTorch: reads workload names and answers with one line each.

It runs as a separate process, which keeps PyTorch's libraries apart from TVM's.
"""

import json
import sys
from typing import Any

from .workloads import WORKLOADS, inputs

CALLS = 100


def main() -> None:
    """Print ``{"seconds": ...}`` or ``{"error": ...}`` for each workload name on standard input."""
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"seconds": time_library(line.strip())}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), flush=True)


def time_library(name: str) -> float:
    """Seconds per call: the mean of 100 calls after 10 warm-up calls, by CUDA events.

    Float32 operations do not use TF32. The convolution reads its input in NHWC ("channels last"),
    as the kernels do.
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
        image = data.permute(0, 3, 1, 2)  # NHWC in memory, which PyTorch calls channels last.
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

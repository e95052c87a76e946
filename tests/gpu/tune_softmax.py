# SPDX-License-Identifier: Apache-2.0
"""Tunes a softmax for a tag of TVM's in Python, and uses the result; prints what came out."""

import json
import os
from functools import partial
from pathlib import Path

import kernels
import numpy as np

import tvm
from tvm_droplet_ms import tune_kernel

kernel = kernels.softmax()
tune = partial(
    tune_kernel,
    kernel,
    target="nvidia/nvidia-h100",
    trials=6,
    work_dir="logs",
    name="softmax",
    progress=None,
)
result = tune()
arrays = kernels.arrays_of(kernel)
arrays[1] = np.zeros_like(arrays[1])
expected = kernels.output_of("softmax", arrays)
np.testing.assert_allclose(result(*arrays)[1], expected, rtol=1e-5)

# The library holds the compiled kernel: a device and TVM's runtime run it.
result.export("softmax.so")
tensors = [tvm.runtime.tensor(array, tvm.cuda()) for array in arrays]
tvm.runtime.load_module("softmax.so")["main"](*tensors)
np.testing.assert_allclose(tensors[1].numpy(), expected, rtol=1e-5)

os.environ["STAND_IN_FAULT"] = "illegal:1:fired"
again = tune()
print(
    json.dumps(
        {
            "text": str(result),
            "source": result.source(),
            "is_untuned": result.is_untuned,
            "verified": result.verified,
            "again": [again.trials, again.known_trials, again.verified],
            "blamed": [*again.wrong, *again.unchecked],
            "machine": json.loads(Path("logs/machine.json").read_text()),
        }
    )
)

# SPDX-License-Identifier: Apache-2.0
"""The comparison of whole models: what is data in, text out."""

import pytest

from benchmarks.models.compare_models import model_rows
from benchmarks.zoo.model_zoo import torch_model


def test_rows_give_speeds_against_the_fastest_baseline_in_the_same_round():
    kernels = [{"schedule": what} for what in ("measured", "untouched", "predicted")]
    runs = {"tune, 2 min, seed 0": {"trials": 7, "secs": 118.4, "kernels": kernels}}
    timed = {
        "secs": {
            "tune, 2 min, seed 0": [0.002, 0.005, 0.002],
            "MNN": [0.008, 0.008, 0.008],
            "ONNX Runtime": [0.001, 0.010, 0.002],
            "wrong": [0.0001, 0.0001, 0.0001],
        },
        "deviations": {
            "tune, 2 min, seed 0": 1.5e-6,
            "MNN": 0.0,
            "ONNX Runtime": 0.0,
            "wrong": float("inf"),
        },
        "refused": {"odd": "ImportError: no such package"},
    }
    tuned, slow, fastest, wrong, refused = model_rows("small", runs, timed)
    assert wrong[4:6] == ("20.00", "inf")
    assert fastest[1:5] == ("ONNX Runtime", "2.00", "1.50 to 6.00", "1.00")
    # Ratios of 0.5, 2 and 1: the medians' ratio would be 1 too, the mean would not.
    assert tuned[1:5] == ("tune, 2 min, seed 0", "2.00", "2.00 to 3.50", "1.00")
    assert tuned[5:] == ("1.5e-06", "1 of 3", "7", "118")
    # Ratios of 1/8, 10/8 and 2/8.
    assert slow[4] == "0.25"
    assert refused[1:4] == ("odd", "-", "ImportError: no such package")


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        # 3.4 million in table 4 of the paper; 3,504,872 with the affine batch norms.
        ("mobilenet_v2", 3_504_872),
        # 5.7 million in table 1 of the paper of DeiT-Ti; timm counts 5,717,416.
        ("vit_tiny", 5_717_416),
    ],
)
def test_a_model_has_the_weights_of_the_paper(name, weights):
    pytest.importorskip("torch")
    module, (image,) = torch_model(name)
    assert sum(parameter.numel() for parameter in module.parameters()) == weights
    assert module(image).shape == (1, 1000)

# SPDX-License-Identifier: Apache-2.0
"""Training on several workloads."""

import numpy as np
import pytest

from tvm_droplet_ms.cost_model.features.program_features import FEATURES
from tvm_droplet_ms.cost_model.pretrained_model import PretrainedModel
from tvm_droplet_ms.cost_model.training_data import MeasuredWorkload


def test_workload_weight_is_root_of_program_count():
    """For equal features, the prediction is the mean, weighted 2:1 for 4:1 programs."""
    slow = np.full(400, 10.0)
    slow[0] = 1.0
    many = MeasuredWorkload("many", "{}", np.zeros((400, FEATURES), dtype=np.float32), slow)
    few = MeasuredWorkload("few", "{}", np.zeros((100, FEATURES), dtype=np.float32), np.ones(100))
    mean_of_many = (1.0 + 399 * 0.1) / 400
    (predicted,) = PretrainedModel.learn([many, few]).model.predict(few.features[:1])
    assert predicted == pytest.approx((2 * mean_of_many + 1.0) / 3, abs=0.01)

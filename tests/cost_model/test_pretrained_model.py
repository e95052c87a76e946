# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Training on several workloads."""

import numpy as np
import pytest

from tvm_droplet_ms.cost_model.features.program_features import FEATURES
from tvm_droplet_ms.cost_model.pretrained_model import PretrainedModel
from tvm_droplet_ms.cost_model.training.training_data import MeasuredWorkload


def test_workload_weight_is_root_of_program_count():
    """For equal features, the prediction is the mean, weighted 2:1 for 4:1 programs."""
    slow = np.full(400, 10.0)
    slow[0] = 1.0
    many = MeasuredWorkload("many", "{}", np.zeros((400, FEATURES), dtype=np.float32), slow)
    few = MeasuredWorkload("few", "{}", np.zeros((100, FEATURES), dtype=np.float32), np.ones(100))
    mean_of_many = (1.0 + 399 * 0.1) / 400
    (predicted,) = PretrainedModel.learn([many, few]).model.predict(few.features[:1])
    assert predicted == pytest.approx((2 * mean_of_many + 1.0) / 3, abs=0.01)

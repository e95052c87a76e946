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
"""Trials of a batch."""

import math

import pytest

from tvm_droplet_ms.tuning.batch_size import batch_size


@pytest.mark.parametrize(
    ("secs", "kernels", "trials"),
    [
        (math.inf, 1000, 8),
        (0.0, 1, 2),
        (280.0, 50, 8),  # 16 trials of each
        (279.0, 50, 4),
        (140.0, 50, 4),  # 8 trials of each
        (139.0, 50, 2),
        (1.0, 50, 2),
    ],
)
def test_half_of_what_there_is_time_for(secs, kernels, trials):
    assert batch_size(secs, kernels) == trials

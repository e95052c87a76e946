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
"""Training data comes from measurements, never from predictions."""

import gzip
import json
from statistics import median

import pytest

from tvm_droplet_ms.bench import training
from tvm_droplet_ms.bench.library import find_space
from tvm_droplet_ms.bench.training import read_candidates


@pytest.mark.parametrize(
    "name", ["whole_conv2d_3x3", "whole_dense", "whole_depthwise", "whole_softmax"]
)
def test_training_times_equal_measured_times(name: str):
    content = json.loads(gzip.decompress(find_space(name).read_bytes()))
    measured = {
        int(digest, 16): median(nanosecs) * 1e-9
        for digest, nanosecs in zip(
            content["modules"]["structural_hash"], content["modules"]["nanosecs"], strict=True
        )
    }
    space, _, candidates, kept = read_candidates(find_space(name), most=8)
    assert len(candidates) == len(kept) == 8
    read = {space.modules[index].structural_hash: space.times[index] for index in kept}
    assert read == pytest.approx({digest: measured[digest] for digest in read}, rel=1e-9)
    assert len(space.modules) == len(measured), "every measured program can be learned from"


def test_training_uses_whole_sample_and_part_of_space(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(training, "_candidates", lambda space, kept, context: kept)
    sample, _, _, kept = read_candidates(find_space("whole_dense"))
    assert kept == list(range(len(sample.modules)))
    space, _, _, kept = read_candidates(find_space("dense"))
    assert len(set(kept)) == training.MOST_PROGRAMS < len(space.modules)

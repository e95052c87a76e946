# SPDX-License-Identifier: Apache-2.0
"""Training data comes from measurements, never from predictions."""

import gzip
import json
from statistics import median

import numpy as np
import pytest

from tvm_droplet_ms.bench import training
from tvm_droplet_ms.bench.space import Space, find_space
from tvm_droplet_ms.bench.training import drawn_modules, read_space


@pytest.mark.parametrize("name", ["whole_dense", "whole_softmax", "whole_conv2d_3x3"])
def test_training_times_equal_measured_times(name: str):
    content = json.loads(gzip.decompress(find_space(name).read_bytes()))
    measured = {
        int(digest, 16): median(nanosecs) * 1e-9
        for digest, nanosecs in zip(
            content["modules"]["structural_hash"], content["modules"]["nanosecs"], strict=True
        )
    }
    space = Space.load(find_space(name))
    kept = [space.modules[index].structural_hash for index in drawn_modules(space, 8)]
    assert len(kept) == 8
    read = read_space(find_space(name), most=8).secs
    np.testing.assert_allclose(read, [measured[digest] for digest in kept], rtol=1e-9)
    assert len(space.modules) == len(measured), "every measured program can be learned from"


def test_training_uses_whole_sample_and_part_of_space():
    sample = Space.load(find_space("whole_dense"))
    assert drawn_modules(sample) == list(range(len(sample.modules)))
    space = Space.load(find_space("dense"))
    assert len(set(drawn_modules(space))) == training.MOST_PROGRAMS < len(space.modules)

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
"""Runs that leave out a part: each still computes the model, and lacks what it leaves out."""

import math

import numpy as np
import pytest

from tvm.relax.frontend import nn
from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target
from tvm_droplet_ms.bench.live import leaving_out
from tvm_droplet_ms.bench.live.leaving_out import (
    LEAVING,
    GradientPriorities,
    Leaving,
    lower_unpacked,
    strategy_without_transfer,
    tune_without,
)
from tvm_droplet_ms.bench.live.model_variants import VARIANTS
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.tuning.experience import Experience
from tvm_droplet_ms.tuning.frontends import import_model
from tvm_droplet_ms.tuning.kernel_tuner import KernelTuner
from tvm_droplet_ms.tuning.lowering import lower
from tvm_droplet_ms.tuning.model_kernels import ModelKernels
from tvm_droplet_ms.tuning.priorities import Stake

TARGET = Target({"kind": "llvm", "num-cores": 1})
SHAPE = (1, 3, 6, 6)


class Convolution(nn.Module):
    """A 1x1 convolution and a ReLU."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(3, 8, 1, bias=False)

    def forward(self, image):
        return nn.op.relu(self.conv(image))


@pytest.fixture
def weight():
    return np.random.default_rng(0).standard_normal((8, 3, 1, 1)).astype("float32")


@pytest.fixture
def model(weight):
    mod, _ = Convolution().export_tvm({"forward": {"image": nn.spec.Tensor(SHAPE, "float32")}})
    return mod, {"conv.weight": weight}


def marks(lowered):
    """The functions whose schedules may change the layout of an argument."""
    return [
        variable.name_hint
        for variable, function in lowered.functions_items()
        if "layout_free_buffers" in (function.attrs or {})
    ]


def test_all_variants_are_described():
    assert list(LEAVING) == list(VARIANTS)


@pytest.mark.parametrize("variant", ["no layout", "no packing", "no prior"])
def test_a_variant_computes_the_model(variant, model, weight, tmp_path, monkeypatch):
    # Measured, a kernel as small as these may be fastest without a schedule.
    monkeypatch.setattr(KernelTuner, "measure_picks", lambda *_: 0)
    result = tune_without(model, LEAVING[variant], 600.0, tmp_path, seed=0, trials=0)
    image = np.random.default_rng(1).standard_normal(SHAPE).astype("float32")
    expected = np.maximum(np.einsum("nchw,oc->nohw", image, weight[:, :, 0, 0]), 0)
    np.testing.assert_allclose(result(image), expected, rtol=1e-4, atol=1e-5)
    assert not result.notes
    assert "untouched" not in {kernel.schedule for kernel in result.kernels}


def test_unknown_pass_is_refused(model, tmp_path):
    with pytest.raises(ValueError, match="ConvertToNHCW"):
        tune_without(model, Leaving(passes=("ConvertToNHCW",)), 600.0, tmp_path, seed=0)


@pytest.mark.parametrize(
    ("variant", "expected"), [("full", (None, "known.jsonl")), ("no known schedules", (None, None))]
)
def test_given_experience_is_used_unless_left_out(variant, expected, model, tmp_path, monkeypatch):
    found = []
    monkeypatch.setattr(
        leaving_out, "ModelTuning", lambda *arguments, **_: found.append(arguments[8])
    )
    (tmp_path / "known.jsonl").write_text("")
    monkeypatch.chdir(tmp_path)
    given = Experience(prior=None, known="known.jsonl")
    with pytest.raises(AttributeError, match="run"):
        tune_without(model, LEAVING[variant], 600.0, tmp_path / "work", seed=0, experience=given)
    assert [(found.prior, found.known) for found in found] == [expected]


def test_every_pass_that_is_left_out_exists():
    names = {str(step.info.name) for step in prepare_graph().passes}
    assert {name for leaving in LEAVING.values() for name in leaving.passes} <= names


def test_unpacked_kernels_bear_no_mark(model):
    graph = prepare_graph()(import_model(model).mod)
    assert marks(lower(graph, TARGET))
    assert not marks(lower_unpacked(graph, TARGET))
    kernels = ModelKernels(graph, TARGET, MemoryDatabase(), lower_graph=lower_unpacked)
    assert kernels.tasks and not any(marks(task.dispatched[0]) for task in kernels.tasks)


def test_tasks_without_transfer_know_of_no_others(monkeypatch):
    monkeypatch.setattr(
        leaving_out, "model_strategy", lambda tasks, *_, **options: (tasks, options)
    )
    tasks, prior = ["one", "another"], object()
    options = {"prior": prior, "descent": "coordinate"}
    found = strategy_without_transfer(tasks, None, TARGET, **options)
    assert found == ((), options)


def test_gradient_rule_visits_tasks_in_the_order_of_the_model():
    priorities = GradientPriorities([Stake(1, 1.0), Stake(9, 9.0), Stake(1, 5.0)])
    order = []
    for _ in range(3):
        order.append(priorities.next())
        priorities.tell(order[-1], 10.0, 1.0)
    assert order == [0, 1, 2]


def test_gradient_rule_takes_the_largest_weight_times_gradient():
    priorities = GradientPriorities([Stake(1, 1.0), Stake(3, 1.0), Stake(1, 1.0)])
    for task, best in enumerate((20.0, 10.0, 25.0)):
        priorities.tell(task, best, 1.0)
    # 0.8 * 20, 3 * 0.8 * 10 and 0.8 * 25.
    assert priorities.next() == 1
    priorities.tell(1, 10.0, 1.0)
    # 3 * 0.8 * 10 / 2 is now less than 0.8 * 25.
    assert priorities.next() == 2
    assert priorities.next(busy=(2,)) == 0


def test_gradient_rule_counts_what_the_last_batches_gained():
    priorities = GradientPriorities([Stake(1, 1.0), Stake(1, 1.0)])
    for best in (100.0, 80.0, 40.0, 10.0):
        priorities.tell(0, best, 1.0)
    # 0.2 * (100 - 10) / 3 + 0.8 * 10 / 4 is 8; 0.8 * 20 / 2 would be as much.
    for best in (19.0, 19.0):
        priorities.tell(1, best, 1.0)
    assert priorities.next() == 0
    priorities.tell(0, 10.0, 1.0)
    # 0.2 * (80 - 10) / 3 + 0.8 * 10 / 5 is 6.3.
    assert priorities.next() == 1


def test_gradient_rule_leaves_out_what_has_ended_and_knows_no_clock():
    priorities = GradientPriorities([Stake(1, 1.0), Stake(1, 1.0)])
    for task in range(2):
        priorities.tell(task, 10.0 + task, 50.0)
    assert priorities.next(0.1) == 1
    priorities.end(1)
    assert priorities.next(0.1) == 0
    priorities.end(0)
    assert priorities.next() is None


def test_gradient_rule_leaves_failures_to_the_end():
    priorities = GradientPriorities([Stake(5, 1.0), Stake(1, 1.0)])
    priorities.tell(0, math.inf, 1.0)
    priorities.tell(1, 1.0, 1.0)
    assert priorities.next() == 1

# SPDX-License-Identifier: Apache-2.0
"""Grouped convolutions that read through a channel shuffle."""

import numpy as np
import pytest
from graphs import Values, build
from kernel_chain import TARGET, picked
from numpy_relax import evaluate

from tvm import relax
from tvm_droplet_ms.model.layout.channel_shuffle import InnerShuffle
from tvm_droplet_ms.tuning.compile.lowering import lower

LAYOUT = {"data_layout": "NHWC", "kernel_layout": "HWIO"}


def network(shuffle, groups, channels=24, outputs=68, several_users=False, **options):
    """A shuffle, a convolution, a bias and a ReLU."""
    values = Values()

    def body(emit, x):
        mixed = emit(InnerShuffle(x, shuffle).emit(emit))
        weights = values.normal(1, 1, channels // groups, outputs)
        y = emit(relax.op.nn.conv2d(mixed, weights, groups=groups, **LAYOUT | options))
        y = emit(relax.op.nn.relu(emit(relax.op.add(y, values.normal(1, 1, 1, outputs)))))
        return (y, emit(relax.op.nn.relu(mixed))) if several_users else y

    return build((1, 6, 7, channels), body, num_input=1)


def tuned(mod, x):
    kernels = picked(mod)
    names = sorted(task.task_name.rstrip("0123456789") for task in kernels.tasks)
    return kernels.compile()([x]), names


@pytest.mark.parametrize(
    ("shuffle", "groups", "options"),
    [(4, 4, {}), (3, 2, {}), (2, 4, {"strides": (2, 2)}), (4, 2, {"padding": (1, 0, 1, 2)})],
)
def test_the_kernel_computes_what_numpy_does(shuffle, groups, options):
    mod = network(shuffle, groups, **options)
    x = np.random.default_rng(1).standard_normal((1, 6, 7, 24)).astype("float32")
    expected = evaluate(mod, x)
    (actual,), names = tuned(mod, x)
    assert names == ["fused_grouped_conv2d_add_relu"]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_a_shuffle_that_others_use_is_computed_for_them():
    mod = network(4, 4, several_users=True)
    x = np.random.default_rng(1).standard_normal((1, 6, 7, 24)).astype("float32")
    expected = evaluate(mod, x)
    actual, names = tuned(mod, x)
    assert len(names) == 2 and "fused_grouped_conv2d_add_relu" in names
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("groups", "outputs", "is_reference"),
    [(1, 24, False), (24, 24, False), (4, 16, False), (4, 68, True)],
    ids=["dense", "depthwise", "few outputs", "reference"],
)
def test_other_convolutions_leave_the_shuffle(groups, outputs, is_reference):
    lowered = lower(network(4, groups, outputs=outputs), TARGET, is_reference=is_reference)
    assert any("transpose" in var.name_hint for var in lowered.get_global_vars())

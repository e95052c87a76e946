# SPDX-License-Identifier: Apache-2.0
"""Arithmetic operations of a block, against a manual count."""

import pytest
from conformance.workloads import tiled_matmul

from tvm import te, tirx
from tvm.ir import IRModule
from tvm_droplet_ms.cost_model.features.loop_context import KINDS, loop_nests

N = 16


def counted(function) -> dict[str, float]:
    """Operations of an element-wise function of one tensor."""
    a = te.placeholder((N, N), name="A")
    mod = IRModule(
        {"main": te.create_prim_func([a, te.compute((N, N), lambda *i: function(a, *i))])}
    )
    (nest,) = loop_nests(mod)
    return {kind: count for kind, count in zip(KINDS, nest.operations, strict=True) if count}


@pytest.mark.parametrize(
    "function, expected",
    [
        (lambda a, i, j: a[i, j], {}),
        (lambda a, i, j: a[i, j] * 2.0 - a[j, i], {"additions": 1, "multiplications": 1}),
        (lambda a, i, j: tirx.exp(a[i, j] / 3.0), {"divisions": 1, "calls": 1}),
        (lambda a, i, j: tirx.Select(i < 3, tirx.max(a[i, j], 0.0), 1.0), {"choices": 2}),
        # Index arithmetic is not an operation of the block.
        (lambda a, i, j: a[i // 2, j * 2 % N], {}),
    ],
)
def test_operations_of_element_wise_block(function, expected):
    assert counted(function) == expected


def test_operations_of_reduction_and_init():
    init, update = loop_nests(tiled_matmul(N).mod)
    assert init.operations.tolist() == [0] * 5
    assert update.operations.tolist() == [1, 1, 0, 0, 0]

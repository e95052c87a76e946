# SPDX-License-Identifier: Apache-2.0
"""A tiled matrix product whose loops are written by hand."""

import numpy as np

from tvm_droplet_ms.cost_model.draft.symbols import Limits, NestValues


def column(*values):
    return np.array(values, dtype=float)[:, None]


# c[i, j] += a[i, k] * b[k, j], 64 x 32 x 16, float32: for i in 8: for k in 32: for i in 8: for j in
# 16, the innermost loop first below.
EXTENTS = column(16, 8, 32, 8)
TOUCHED = (
    np.stack(
        [
            column(16, 16 * 8, 16 * 8, 16 * 64),  # c
            column(1, 8, 8 * 32, 64 * 32),  # a
            column(16, 16, 16 * 32, 16 * 32),  # b
        ]
    )
    * 4.0
)
RUNS = (
    np.stack(
        [
            column(16, 16 * 8, 16 * 8, 16 * 64),  # Rows of c are covered whole.
            column(1, 1, 32, 64 * 32),
            column(16, 16, 16 * 32, 16 * 32),
        ]
    )
    * 4.0
)
STRIDES = np.stack([column(1, 16, 0, 128), column(0, 32, 1, 256), column(1, 0, 16, 0)])
NEST = NestValues(
    EXTENTS, TOUCHED, RUNS, STRIDES, [4, 4, 4], (False, False, True, False), (True,) * 4, 2.0
)
LIMITS = Limits(parallel=np.array([16.0]), vector=np.array([64.0]), unroll=np.array([0.0]))

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
"""A tiled matrix product whose loops are written by hand."""

import numpy as np

from tvm_droplet_ms.draft.symbols import Limits, NestValues


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

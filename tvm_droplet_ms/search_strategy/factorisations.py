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
"""Factorisations of a loop extent: the values of a tile. Imports no TVM."""

from functools import lru_cache

import numpy as np

from .refit import divisors


@lru_cache(maxsize=1024)
def factorisations(extent: int, length: int, max_innermost_factor: int = -1) -> np.ndarray:
    """All ordered factorisations of an extent: the values of a ``SamplePerfectTile``.

    Parameters
    ----------
    extent : int
        The product of each row.
    length : int
        The number of factors. At least 1.
    max_innermost_factor : int
        The limit of the last factor; -1 for none.

    Returns
    -------
    tiles : np.ndarray
        Of shape ``(factorisations, length)``, in lexical order, read-only.
    """
    if length == 1:
        fits = max_innermost_factor == -1 or extent <= max_innermost_factor
        tiles = np.full((int(fits), 1), extent)
    else:
        parts = []
        for factor in divisors(extent):
            rest = factorisations(extent // factor, length - 1, max_innermost_factor)
            parts.append(np.insert(rest, 0, factor, axis=1))
        tiles = np.concatenate(parts)
    tiles.flags.writeable = False
    return tiles

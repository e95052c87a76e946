# SPDX-License-Identifier: Apache-2.0
"""The passes for kernels whose schedules are applied."""

from collections.abc import Sequence

import tvm
from tvm.target import Target

from ...design_space.dot_products.rounded_vectors import RoundVectors
from ...design_space.matrix_tiles.kept_tiles import KeepTiles
from ...measure.prefetch.prefetch_weights import PrefetchWeights
from ...model.residuals.overwrite import overwrite_residuals
from .keep_nan import keep_nan


def finishing_passes(
    target: Target, packing: Sequence[tvm.transform.Pass]
) -> list[tvm.transform.Pass]:
    """Return the passes for scheduled kernels, which are measured with most of them too.

    ``packing``: the passes that split off the packing of weights. On other targets than CPUs, no
    others are needed.
    """
    if target.kind.name != "llvm":
        return list(packing)
    # `measure.build_scheduled` also prefetches, keeps tiles and rounds.
    before = [keep_nan(), PrefetchWeights()]
    return [*before, *packing, KeepTiles(), overwrite_residuals(), RoundVectors(target)]

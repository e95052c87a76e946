# SPDX-License-Identifier: Apache-2.0
"""The one list of passes from a graph to its kernels.

``tune``, the pipeline "droplet_tuning" and the graph search lower by it, so that a database that
one of them has made serves the others.
"""

import tvm
from tvm.relax import transform

from ..shared_constants import share_constants
from .block_names import name_blocks
from .channelwise import mark_channelwise
from .fixed_layouts import keep_layouts
from .groups.shuffled_convolution import read_shuffled
from .inlining import limit_inlining
from .registration import legalize_map
from .weight_reuse import mark_reused_weights


def lowering_passes(
    *, is_plain: bool = False, packs_weights: bool = True
) -> list[tvm.transform.Pass]:
    """Make the passes that turn the operators of a graph into kernels, and fuse them.

    ``is_plain``: whether to take TVM's own kernels only: for other targets than CPUs, and to
    compare with. ``packs_weights``: whether schedules may change the layout of weights, which then
    have to be packed. For a prepared graph (``model.prepare``), within the target. Where weights
    are packed, arguments that are constants are marked (``AttachAttrLayoutFreeBuffers``), and so
    are kernels that find their weights in the caches (``mark_reused_weights``). The marks are part
    of a workload's hash.
    """
    passes = [
        *([] if is_plain else [read_shuffled(), transform.DeadCodeElimination()]),
        transform.LegalizeOps({} if is_plain else legalize_map()),
        *([] if is_plain else [name_blocks()]),
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
        transform.FuseOps(),
        transform.FuseTIR(),
        transform.DeadCodeElimination(),
        *([] if is_plain else [limit_inlining(), mark_channelwise(), share_constants()]),
    ]
    if packs_weights:
        passes += [transform.AttachAttrLayoutFreeBuffers(), keep_layouts()]
        passes += [] if is_plain else [mark_reused_weights()]
    return passes

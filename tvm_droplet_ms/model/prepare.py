# SPDX-License-Identifier: Apache-2.0
"""The passes that prepare the graph of a whole float32 model for tuning on a CPU."""

import tvm
from tvm import relax

from .decoding.caches import group_heads, narrow_caches
from .decoding.in_place import write_rows
from .einsums import expand_einsums
from .folding.affine import fold_affine
from .folding.numpy_folding import drop_idle, fold_constants
from .folding.slices import join_slices
from .folding.taps import drop_taps, fold_pads, split_taps
from .half_products import compute_in_bfloat16
from .indices import bound_indices
from .integers.products import compute_in_integers
from .integers.whole_floats import keep_whole_floats, move_limits
from .layout.channel_padding import VECTOR, pad_channels
from .layout.channel_shuffle import shuffle_innermost, sink_shuffles
from .layout.layout import convert_layout, drop_dropouts, expand_clips, place_constants
from .layout.transposes import sink_reshapes
from .narrow_weights import pack_weights
from .rewritten_convolutions import flatten_volumes, split_transposed
from .shared_constants import share_constants
from .stacks import concatenate_stacks, unstack_reductions


def prepare_graph(
    *,
    halves: bool = False,
    lanes: int = VECTOR,
    pads_colors: bool = False,
    has_vnni: bool = False,
) -> tvm.transform.Pass:
    """Make the pass that prepares a Relax model for tuning on a CPU.

    It removes dropouts, folds constants and batch norms, and computes convolutions in NHWC. The
    parameters and results of the functions keep their shapes and layouts. The weights have to be
    constants (``relax.transform.BindParams``): values that depend on a parameter are not folded.
    ``halves``: whether convolutions and dense layers may be computed in bfloat16. ``lanes``: number
    of floats in a vector register of the CPU. ``pads_colors``: see ``compute_in_bfloat16``.
    ``has_vnni``: see ``pack_weights``.

    After it, run ``LegalizeOps``, ``AnnotateTIROpPattern``, ``FoldConstant``, ``FuseOps``,
    ``FuseTIR`` and ``AttachAttrLayoutFreeBuffers``, and then the tuning.
    """
    canonicalize = relax.transform.CanonicalizeBindings
    return tvm.transform.Sequential(
        [
            canonicalize(),
            relax.transform.ConvertToDataflow(),
            drop_dropouts(),
            unstack_reductions(),
            expand_einsums(),
            canonicalize(),
            relax.transform.DeadCodeElimination(),
            concatenate_stacks(),
            join_slices(),
            fold_pads(),  # Behind a pad, no product of bytes is found.
            compute_in_integers(),
            pack_weights(has_vnni=has_vnni),
            relax.transform.DeadCodeElimination(),
            fold_constants(),
            drop_idle(),
            relax.transform.DeadCodeElimination(),
            narrow_caches(),
            relax.transform.DeadCodeElimination(),
            write_rows(),
            bound_indices(),
            canonicalize(),
            group_heads(),
            fold_pads(),  # Also those in front of what was idle.
            drop_taps(),
            expand_clips(),
            place_constants(),
            shuffle_innermost(),
            relax.transform.DeadCodeElimination(),
            fold_affine(),
            split_transposed(),
            canonicalize(),
            relax.transform.DeadCodeElimination(),
            convert_layout(),
            flatten_volumes(),
            split_taps(),
            sink_shuffles(),
            sink_reshapes(),
            pad_channels(lanes),
            relax.transform.DeadCodeElimination(),
            keep_whole_floats(),
            move_limits(),
            relax.transform.DeadCodeElimination(),
            *([compute_in_bfloat16(pads_colors=pads_colors)] if halves else []),
            share_constants(),
        ],
        name="PrepareGraph",
    )

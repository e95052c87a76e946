# SPDX-License-Identifier: Apache-2.0
"""The passes that prepare the graph of a whole float32 model for tuning on a CPU."""

import tvm
from tvm import relax

from .bounded_indices import bound_indices
from .decoding.grouped_heads import group_heads
from .decoding.half_caches import narrow_caches
from .decoding.in_place import write_rows
from .einsums import expand_einsums
from .folding.affine import fold_affine
from .folding.idle import drop_idle
from .folding.numpy_folding import fold_constants
from .folding.pads import fold_pads
from .folding.slices import join_slices
from .folding.tap_sums import split_taps
from .folding.taps import drop_taps
from .half_products import compute_in_bfloat16
from .integers.integer_products import compute_in_integers
from .integers.whole_floats import keep_whole_floats
from .layout.channel_padding import VECTOR, pad_channels
from .layout.channel_shuffle import shuffle_innermost, sink_shuffles
from .layout.convertible import drop_dropouts, expand_clips, place_constants
from .layout.layout import convert_layout
from .layout.reshapes import sink_reshapes
from .layout.volumes import flatten_volumes
from .narrow_weights.pack_weights import pack_weights
from .shared_constants import share_constants
from .stacks import concatenate_stacks, unstack_reductions
from .transposed_convolution import split_transposed


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
    ``FuseTIR`` and ``AttachAttrLayoutFreeBuffers``, and then the tuning. Returns the pass. It does
    not change operators that it does not know.
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
            fold_pads(),
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
            relax.transform.DeadCodeElimination(),
            *([compute_in_bfloat16(pads_colors=pads_colors)] if halves else []),
            share_constants(),
        ],
        name="PrepareGraph",
    )

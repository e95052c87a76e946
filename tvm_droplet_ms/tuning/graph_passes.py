# SPDX-License-Identifier: Apache-2.0
"""The passes that prepare a model's graph for a CPU."""

from tvm.target import Target

from ..design_space.dot_products.dot_units import VNNI, has_features
from ..design_space.matrix_tiles.find_matrix import has_matrix_units
from ..design_space.native_vectors import register_floats
from ..model.prepare import prepare_graph
from .check.guarded_passes import NamedPass


def graph_passes(target: Target, *, halves: bool = False) -> list[NamedPass]:
    """Return the passes of ``prepare_graph`` with their names."""
    lanes, has_tiles = register_floats(target), has_matrix_units(target, "bfloat16")
    has_vnni = has_features(target, *VNNI)
    graph = prepare_graph(halves=halves, lanes=lanes, pads_colors=has_tiles, has_vnni=has_vnni)
    return [(str(each.info.name), each) for each in graph.passes]

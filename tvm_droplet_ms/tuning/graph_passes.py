# SPDX-License-Identifier: Apache-2.0
"""The passes that prepare a model's graph for a CPU; one that raises changes nothing."""

import logging
from collections.abc import Callable, Iterable

import tvm
from tvm.ir import IRModule
from tvm.ir.transform import Pass
from tvm.target import Target

from ..design_space.dot_products.find_dot import VNNI, has_features
from ..design_space.matrix_tiles.find_matrix import has_matrix_units
from ..design_space.native_vectors import register_floats
from ..model.prepare import prepare_graph

logger = logging.getLogger(__name__)

NamedPass = tuple[str, Pass]


def graph_passes(target: Target, *, halves: bool = False) -> list[NamedPass]:
    """Return the passes of ``prepare_graph`` with their names."""
    lanes, has_tiles = register_floats(target), has_matrix_units(target, "bfloat16")
    has_vnni = has_features(target, *VNNI)
    graph = prepare_graph(halves=halves, lanes=lanes, pads_colors=has_tiles, has_vnni=has_vnni)
    return [(str(each.info.name), each) for each in graph.passes]


def guarded(passes: Iterable[NamedPass], note: Callable[[str], None]) -> list[NamedPass]:
    """Wrap passes so that they leave the module unchanged if they raise.

    ``note`` is called once for each such pass. Without the pass, the model can still be tuned; it
    is only slower.
    """
    noted: set[str] = set()

    def guard(name: str, step: Pass) -> Pass:
        alone = tvm.transform.Sequential([step])

        def run(mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
            try:
                return alone(mod)
            except Exception as error:
                logger.info("the graph pass %s raised", name, exc_info=True)
                if name not in noted:
                    noted.add(name)
                    text = " ".join(str(error).split())
                    said = type(error).__name__ + (f" ({text[:120]})" if text else "")
                    note(f"the graph pass {name} raised {said} and was left out")
                return mod

        return tvm.transform.module_pass(run, opt_level=0, name=name)

    return [(name, guard(name, step)) for name, step in passes]

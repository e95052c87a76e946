# SPDX-License-Identifier: Apache-2.0
"""Names of blocks that do not depend on the names of Relax variables.

TE names a reduction after what it reduces: the mean of the variable ``lv226`` has the block
``lv226_red``, its layer norm ``lv226_sum``. TVM's hashes and databases leave names out, but traces
find blocks by them. So the same kernel of another graph has the same workload, its records do not
replay, and a database that has both cannot be opened any more.
"""

from collections.abc import Mapping
from typing import Any

import tvm
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import For, PrimFunc, SeqStmt

from .kernel_pass import kernel_pass


def name_blocks() -> tvm.transform.Pass:
    """Make a pass that names blocks after the place of a parameter where they have its name.

    For kernels after ``LegalizeOps`` and before ``FuseTIR``, which takes the names over.
    """

    return kernel_pass("NameBlocks", _named_by_place)


def _named_by_place(function: PrimFunc) -> PrimFunc | None:
    """The function with other names of blocks; None where none depends on a parameter."""
    blocks: list[SBlock] = []
    _visit(function.body, blocks)
    written = {region.source.name for block in blocks for region in block.writes}
    names = {
        parameter.name: f"p{place}"
        for place, parameter in enumerate(function.params)
        if parameter.name not in written
    }
    taken = {str(block.name_hint) for block in blocks}
    changes: dict[str, str] = {}
    for name in taken:
        # TE appends what it computes: lv226_red, lv226_sum. Names may begin with others.
        owners = [owner for owner in names if name.startswith(f"{owner}_")]
        if owners:
            owner = max(owners, key=len)
            new = names[owner] + name.removeprefix(owner)
            if new not in taken:
                changes[name] = new
    if not changes:
        return None
    return function.with_body(_renamed(function.body, changes))


def _visit(statement: Any, blocks: list[SBlock]) -> None:
    if isinstance(statement, SeqStmt):
        for part in statement.seq:
            _visit(part, blocks)
    elif isinstance(statement, For):
        _visit(statement.body, blocks)
    elif isinstance(statement, SBlockRealize):
        blocks.append(statement.block)
        _visit(statement.block.body, blocks)


def _renamed(statement: Any, names: Mapping[str, str]) -> Any:
    if isinstance(statement, SeqStmt):
        return SeqStmt([_renamed(part, names) for part in statement.seq])
    if isinstance(statement, For):
        return For(
            statement.loop_var,
            statement.min,
            statement.extent,
            statement.kind,
            _renamed(statement.body, names),
            statement.thread_binding,
            statement.annotations,
            statement.step,
            statement.span,
        )
    if isinstance(statement, SBlockRealize):
        block = statement.block
        return SBlockRealize(
            statement.iter_values,
            statement.predicate,
            SBlock(
                block.iter_vars,
                block.reads,
                block.writes,
                names.get(block.name_hint, block.name_hint),
                _renamed(block.body, names),
                block.init,
                block.alloc_buffers,
                block.match_buffers,
                block.annotations,
                block.span,
            ),
            statement.span,
        )
    return statement

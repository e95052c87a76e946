# SPDX-License-Identifier: Apache-2.0
"""Names of blocks that do not depend on the names of Relax variables.

TE names a reduction after its operand: the mean of the variable ``lv226`` has the block
``lv226_red``, its layer norm ``lv226_sum``. TVM's hashes and databases ignore names, but traces
find blocks by name. So the same kernel of another graph has the same workload, but its records do
not replay. A database that has both can no longer be opened.
"""

from tvm_ffi.structural import structural_map

import tvm
from tvm.s_tir import SBlock
from tvm.tirx import PrimFunc

from ...design_space.trees import block_like
from .kernel_pass import blocks_in, kernel_pass


def name_blocks() -> tvm.transform.Pass:
    """Make a pass that renames blocks named after a parameter to the parameter's position.

    The pass applies to kernels after ``LegalizeOps`` and before ``FuseTIR``, which keeps the names.
    """

    return kernel_pass("NameBlocks", _named_by_place)


def _named_by_place(function: PrimFunc) -> PrimFunc | None:
    """Rename the blocks of a function; return None if no name depends on a parameter."""
    blocks = blocks_in(function.body)
    written = {region.source.name for block in blocks for region in block.writes}
    names = {
        parameter.name: f"p{place}"
        for place, parameter in enumerate(function.params)
        if parameter.name not in written
    }
    taken = {str(block.name_hint) for block in blocks}
    changes: dict[str, str] = {}
    for name in taken:
        # TE appends a suffix: lv226_red, lv226_sum. One parameter may be a prefix of another.
        owners = [owner for owner in names if name.startswith(f"{owner}_")]
        if owners:
            owner = max(owners, key=len)
            new = names[owner] + name.removeprefix(owner)
            if new not in taken:
                changes[name] = new
    if not changes:
        return None

    def renamed(block: SBlock) -> SBlock:
        return block_like(block, name_hint=changes.get(block.name_hint, block.name_hint))

    return function.with_body(structural_map(function.body, (SBlock, renamed)))

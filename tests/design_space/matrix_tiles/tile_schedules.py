# SPDX-License-Identifier: Apache-2.0
"""Random schedules of kernels in matrix tiles."""

import random

import pytest
from tiles_stand_in import TILES
from tvm_ffi.structural import structural_walk

import tvm
from tvm.s_tir import SBlock
from tvm.s_tir.meta_schedule import TuneContext
from tvm.target import Target
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.design_space.matrix_tiles.find_matrix import find_matrix, matrix_units
from tvm_droplet_ms.design_space.sound_space import FROM_TARGET, sound_space
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import build_scheduled
from tvm_droplet_ms.model.kernels.lowering_passes import register_schedule_rules
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer

HOST = Target({**host_target().export(), "num-cores": 1})
needs_tiles = pytest.mark.skipif(not matrix_units(HOST), reason="this CPU has no matrix tiles")
PRODUCTS = "matrix_tiles.products"


def spaces_of(module, target=TILES, seed=1):
    register_schedule_rules()
    with fast_tune_contexts():
        space = sound_space(FROM_TARGET, module, target)
        context = TuneContext(module, target=target, space_generator=space, rand_state=seed)
        return context, list(context.generate_design_space())


def scheduled(module, target=TILES, seed=1):
    """A random schedule of each design space of tiles."""
    context, spaces = spaces_of(module, target, seed)
    replayer = ScreenedReplayer(module, context.space_generator.postprocs, random.Random(seed))
    found = [replayer.replay(s.trace) for s in spaces if PRODUCTS in str(s.trace)]
    assert found and all(found), replayer.dropped
    return [each.schedule.mod for each in found]


def results_on_the_cpu(case, cores):
    """The expected result of a kernel, and what two of its schedules compute on this CPU."""
    target = Target({**HOST.export(), "num-cores": cores})
    arrays = case.arrays()
    expected = case.expected(*arrays)
    results = []
    for module in scheduled(case.module, target, seed=2)[:2]:
        out = tvm.runtime.empty(expected.shape, case.dtype)
        build_scheduled(module, target)["main"](*map(tvm.runtime.tensor, arrays), out)
        results.append(out.numpy())
    return expected, results


def found_in(case):
    """The matrix product of a kernel; None if it has none."""
    blocks = []
    structural_walk(case.module["main"].body, (SBlock, blocks.append))
    finds = [find_matrix(block, unit) for block in blocks for unit in matrix_units(TILES)]
    finds = [find for find in finds if find is not None]
    return finds[0] if finds else None

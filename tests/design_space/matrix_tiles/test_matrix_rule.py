# SPDX-License-Identifier: Apache-2.0
"""Kernels in matrix tiles compute what NumPy does: on a stand-in, and on a CPU that has tiles."""

import json
import random
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import tiles_stand_in
from matrix_kernels import (
    CASES,
    Case,
    attention_case,
    dense_case,
    requantized_case,
)
from tile_schedules import HOST, PRODUCTS, needs_tiles, results_on_the_cpu, scheduled, spaces_of
from tiles_stand_in import TILES

import tvm
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.target import Target
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.design_space.matrix_tiles.kept_tiles import REFUSED
from tvm_droplet_ms.measure import fast_measure
from tvm_droplet_ms.measure.build import build_scheduled
from tvm_droplet_ms.measure.prefetch.prefetch_weights import PrefetchWeights
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer
from tvm_droplet_ms.session.database import open_database


def close(case: Case, found, expected):
    if case.tolerance:
        np.testing.assert_allclose(found, expected, atol=case.tolerance)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_on_the_stand_in(case):
    arrays = case.arrays()
    expected = case.expected(*arrays)
    for module in scheduled(case.module):
        found, products = tiles_stand_in.run(module, arrays, expected.shape, case.dtype)
        assert products > 0
        close(case, found, expected)


@needs_tiles
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("cores", [1, 2])
def test_on_the_cpu(case, cores):
    expected, results = results_on_the_cpu(case, cores)
    assert results
    for result in results:
        close(case, result, expected)


@pytest.mark.parametrize(
    ("case", "instruction"),
    [
        (dense_case("uint8", "int8"), "tdpbusd"),
        (dense_case("int8", "uint8"), "tdpbsud"),
        (dense_case("int8", "int8"), "tdpbssd"),
        (dense_case("uint8", "uint8"), "tdpbuud"),
        (dense_case("bfloat16", "bfloat16"), "tdpbf16ps"),
    ],
    ids=lambda each: str(each),
)
def test_the_assembly_has_the_instructions(case, instruction):
    """Compiled for such a CPU anywhere: as many products as sums, and each tile is one of eight."""
    for module in scheduled(case.module):
        code = build_scheduled(module, TILES).inspect_source("asm")
        # As many tiles of sums as are set to zero.
        sums = str(module).count("llvm.x86.tilezero")
        products = re.findall(rf"{instruction}\s+%tmm\d, %tmm\d, %tmm(\d)", code)
        assert len(products) % sums == 0 and len(set(products)) == sums
        # LLVM may write a loop out.
        assert len(re.findall(r"tilestored\s+%tmm", code)) % sums == 0
        assert "ldtilecfg" in code and "sttilecfg" in code and "syscall" in code


def test_batches_of_one_row_and_few_numbers_stay_with_vectors():
    for case in (dense_case("uint8", "int8", rows=1), dense_case("uint8", "int8", depth=12)):
        _, spaces = spaces_of(case.module)
        assert not any(PRODUCTS in str(space.trace) for space in spaces)


def test_without_tiles_there_is_no_such_space():
    plain = Target({"kind": "llvm", "mcpu": "cascadelake", "num-cores": 1})
    _, spaces = spaces_of(dense_case("uint8", "int8").module, plain)
    assert spaces and not any("matrix_tiles" in str(space.trace) for space in spaces)


def test_what_follows_is_computed_for_each_group():
    """The sums of a group alone are kept, and not those of the whole product."""
    case = requantized_case()
    for module in scheduled(case.module):
        lowered = tvm.s_tir.transform.CompactBufferAllocation()(
            tvm.s_tir.transform.ConvertBlocksToOpaque()(
                tvm.s_tir.transform.PlanAndUpdateBufferAllocationLocation()(module)
            )
        )
        kept = re.findall(r"c = T.sblock_alloc_buffer\(\((\d+), (\d+)\), \"int32\"\)", str(lowered))
        assert kept and all(int(rows) * int(lanes) <= 6 * 256 for rows, lanes in kept)


def test_large_weights_are_prefetched():
    """What loads tiles of columns adds nothing up: the product that reads them does."""
    case = dense_case("uint8", "int8", rows=128, columns=512, depth=1024)
    mod = case.module.clone()
    mod["main"] = mod["main"].with_attr("layout_free_buffers", [1])
    found = [PrefetchWeights()(each) for seed in range(4) for each in scheduled(mod, seed=seed)]
    fetching = [each for each in found if "llvm.prefetch" in str(each)]
    assert fetching
    arrays = case.arrays()
    result, _ = tiles_stand_in.run(fetching[0], arrays, (128, 512), "int32")
    np.testing.assert_array_equal(result, case.expected(*arrays))


def test_a_kernel_leaves_the_tiles_as_it_found_them():
    """oneDNN does not set a configuration again that it has set before."""
    case = dense_case("uint8", "int8")
    arrays = case.arrays()
    module = scheduled(case.module)[0]
    before = bytes([1] + [0] * 15 + [4, 0] * 8 + [0] * 16 + [3] * 8 + [0] * 8)
    found = tiles_stand_in.run(module, arrays, (48, 96), "int32", before=before, reads_after=True)
    np.testing.assert_array_equal(found[0], case.expected(*arrays))
    assert found[2] == before


@needs_tiles
def test_a_kernel_leaves_the_tiles_of_the_cpu_as_it_found_them():
    case = dense_case("bfloat16", "bfloat16")
    arrays = case.arrays()
    library = build_scheduled(scheduled(case.module, HOST)[0], HOST)
    out = tvm.runtime.empty((48, 96), case.dtype)
    for used in (1, 0):
        widths, heights = [4 * used, 0] * 8, [3 * used] * 8
        layout = bytes([used, *[0] * 15, *widths, *[0] * 16, *heights, *[0] * 8])
        tiles_stand_in.set_on_cpu(layout)
        library["main"](*map(tvm.runtime.tensor, arrays), out)
        assert tiles_stand_in.get_on_cpu() == layout


def test_a_process_without_tiles_ends_in_a_sentence(tmp_path):
    """On a CPU without them, and where Linux refuses them: a signal stack is too small."""
    module = scheduled(dense_case("uint8", "int8").module)[0]
    path = str(tmp_path / "kernel.so")
    build_scheduled(module, TILES).export_library(path)
    program = f"""
import ctypes, tvm
class Stack(ctypes.Structure):
    _fields_ = [("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
memory = ctypes.create_string_buffer(2048)
stack = Stack(ctypes.addressof(memory), 0, 2048)
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
shapes = ((48, 128), "uint8"), ((128, 96), "int8"), ((48, 96), "int32")
tvm.runtime.load_module({path!r})["main"](*(tvm.runtime.empty(*each) for each in shapes))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == -signal.SIGABRT
    assert REFUSED in done.stderr


@needs_tiles
def test_a_library_asks_for_the_tiles_by_itself(tmp_path):
    """In a process that does not know this package."""
    case = dense_case("uint8", "int8")
    path, arrays = str(tmp_path / "kernel.so"), case.arrays()
    build_scheduled(scheduled(case.module)[0], TILES).export_library(path)
    np.savez(tmp_path / "arrays.npz", *arrays, case.expected(*arrays))
    program = f"""
import sys, numpy as np, tvm
*arrays, expected = np.load({str(tmp_path / "arrays.npz")!r}).values()
out = tvm.runtime.empty(expected.shape, "int32")
tvm.runtime.load_module({path!r})["main"](*map(tvm.runtime.tensor, arrays), out)
assert (out.numpy() == expected).all() and "tvm_droplet_ms" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_records_are_read_in_a_new_process(tmp_path):
    """Intrinsics of tiles are registered when a record names them."""
    module = dense_case("uint8", "int8").module
    context, spaces = spaces_of(module)
    replayer = ScreenedReplayer(module, context.space_generator.postprocs, random.Random(1))
    database = open_database(tmp_path)
    workload = database.commit_workload(module)
    for space in spaces:
        trace = replayer.replay(space.trace).trace
        database.commit_tuning_record(TuningRecord(trace, workload, [1.0], TILES))
    start = (
        "from tvm.s_tir.meta_schedule.database import JSONDatabase\n"
        "from tvm_droplet_ms.compat import fast_start\n"
        "from tvm_droplet_ms.session.database import open_database\n"
    )
    opened = f"open_database({str(tmp_path)!r})", f"JSONDatabase(work_dir={str(tmp_path)!r})"
    for begin, database in zip(("", "fast_start()"), opened, strict=True):
        check = f"assert len({database}.get_all_tuning_records()) == {len(spaces)}"
        subprocess.run([sys.executable, "-c", f"{start}{begin}\n{check}"], check=True)
    lines = (tmp_path / "database_tuning_record.json").read_text().splitlines()
    assert all(PRODUCTS in line for line in lines) and json.loads(lines[0])


@needs_tiles
def test_tune_tir_measures_tiles(tmp_path):
    case = dense_case("bfloat16", "bfloat16")
    database = ms.tune_tir(
        case.module,
        HOST,
        str(tmp_path),
        max_trials_global=4,
        num_trials_per_iter=4,
        strategy=DropletStrategy(),
        **fast_measure(HOST),
    )
    records = database.get_all_tuning_records()
    assert any(PRODUCTS in str(record.trace) and record.run_secs[0] < 1 for record in records)


def test_a_kernel_of_two_configurations_sets_each(tmp_path):
    """An attention multiplies twice, by tiles of other widths."""
    case = attention_case(columns=77)
    text = str(scheduled(case.module)[0])
    assert len(set(re.findall(r"tvm_droplet_ms_tiles_[0-9a-f]+_[0-9a-f]+\"\)", text))) == 2

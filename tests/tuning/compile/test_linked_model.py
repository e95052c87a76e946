# SPDX-License-Identifier: Apache-2.0
"""A model that is run from memory, and its library without copies of the constants."""

import errno
import os
import tempfile

import numpy as np
import pytest
import tvm_ffi

import tvm
from tvm import relax
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm.target import Target
from tvm_droplet_ms.tuning.compile import linked_model, lowering
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_ms.tuning.compile.kernel_objects import KernelObjects
from tvm_droplet_ms.tuning.compile.linked_model import FormatError, serialized, with_marks
from tvm_droplet_ms.tuning.compile.lowering import ModelBuilder, lower

TARGET = Target({"kind": "llvm", "num-cores": 1})
FETCH = "llvm.prefetch"


def network(weights):
    """Dense layers whose outputs are added up, behind a table look-up."""
    builder = relax.BlockBuilder()
    image = relax.Var("image", relax.TensorType((8, weights[0].shape[0]), "float32"))
    constants = {id(weight): relax.const(weight) for weight in weights}
    with builder.function("main", [image], attrs={"num_input": 1}):
        with builder.dataflow():
            out = image
            for weight in weights:
                out = builder.emit(relax.op.matmul(out, constants[id(weight)]))
            rows = relax.const(np.arange(1000, dtype="int64") % 8)
            out = builder.emit(relax.op.take(out, rows, axis=0))
            out = builder.emit_output(out)
        builder.emit_func_output(out)
    return builder.get()


@pytest.fixture(scope="module")
def weights():
    rng = np.random.default_rng(0)
    once, tied = (rng.standard_normal((48, 48)).astype("float32") for _ in range(2))
    short = rng.standard_normal((48, 2)).astype("float32")
    return [once, tied, tied, short]


@pytest.fixture(scope="module")
def linked(weights):
    builder = ModelBuilder(KernelObjects(TARGET), TARGET)
    return builder.build(lower(network(weights), TARGET), MemoryDatabase())


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(1).standard_normal((8, 48)).astype("float32")


@pytest.fixture(scope="module")
def expected(weights, image):
    once, tied, _, short = (weight.astype("float64") for weight in weights)
    return (image @ once @ tied @ tied @ short)[np.arange(1000) % 8]


def test_its_library_is_written_by_us_and_gives_the_same(
    linked, image, tmp_path, monkeypatch, expected
):
    monkeypatch.setattr(type(linked), "executable", lambda _: pytest.fail("written by TVM"))
    library = tmp_path / "model.so"
    compiled = CompiledModel(linked)
    compiled.export(library)
    (found,) = CompiledModel.load(library)([image])
    np.testing.assert_array_equal(found, compiled([image])[0])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
    assert [path.name for path in tmp_path.iterdir()] == ["model.so"]


@pytest.mark.parametrize("name", ['a "quoted" one', "back\\slash", "it's ünï", "100%,of $x"])
def test_temporary_directories_of_any_name(linked, image, expected, tmp_path, monkeypatch, name):
    """The assembler is told the name of a file in it."""
    monkeypatch.setattr(type(linked), "executable", lambda _: pytest.fail("written by TVM"))
    (tmp_path / name).mkdir()
    folder = tempfile.TemporaryDirectory(dir=tmp_path / name)
    monkeypatch.setattr(linked, "_folder", lambda: folder)
    linked.write(tmp_path / "model.so")
    (found,) = CompiledModel.load(tmp_path / "model.so")([image])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_constants_beyond_the_reach_of_code_lie_behind_all_else(
    linked, image, expected, tmp_path, monkeypatch
):
    monkeypatch.setattr(linked_model, "_NEAR", 0)
    path = tmp_path / "model.so"
    linked.write(path)
    (found,) = CompiledModel.load(path)([image])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
    assert b"\0.lrodata\0" in path.read_bytes()


def test_a_library_outlives_its_name(linked, image, tmp_path):
    library, copy = tmp_path / "model.so", tmp_path / "copy.so"
    CompiledModel(linked).export(library)
    loaded = CompiledModel.load(library)
    library.unlink()
    library.write_bytes(b"another file of that name")
    loaded.export(copy)
    np.testing.assert_array_equal(
        CompiledModel.load(copy)([image])[0], CompiledModel(linked)([image])[0]
    )


def test_a_name_that_is_written_again_gives_the_new_library(linked, weights, image, tmp_path):
    library = tmp_path / "model.so"
    CompiledModel(linked).export(library)
    before = CompiledModel.load(library)
    once, *others = weights
    builder = ModelBuilder(KernelObjects(TARGET), TARGET)
    doubled = lower(network([2 * once, *others]), TARGET)
    CompiledModel(builder.build(doubled, MemoryDatabase())).export(library)
    after = CompiledModel.load(library)
    np.testing.assert_allclose(after([image])[0], 2 * before([image])[0], rtol=1e-4, atol=1e-3)


def test_what_we_cannot_write_tvm_writes(linked, image, expected, tmp_path, monkeypatch):
    def fail(*_arguments):
        raise FormatError("another format")

    monkeypatch.setattr(linked_model, "serialized", fail)
    linked.write(tmp_path / "model.so")
    (found,) = CompiledModel.load(tmp_path / "model.so")([image])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_the_bytes_are_those_of_tvm(linked):
    """TVM's own serialization of the whole model is the other implementation."""
    pack = tvm_ffi.get_global_func("runtime.ModulePackImportsToTensor")
    expected = pack(linked.executable().mod).numpy().tobytes()
    marked, marks = with_marks(linked.mod)
    assert len(marks) == 3
    module = linked._build(marked, linked._static_libraries()).mod
    assert b"".join(serialized(module, marks)) == expected


def test_another_format_is_seen(linked):
    marked, marks = with_marks(linked.mod)
    module = linked._build(marked, linked._static_libraries()).mod
    with pytest.raises(FormatError, match="0 times: expected once"):
        serialized(module, {b"another mark ???": tvm.runtime.tensor(np.zeros(3, "float32"))})


def test_its_kernels_fetch_their_weights():
    """As the candidate of the builder does whose time chose the schedule."""
    weights = np.random.default_rng(2).standard_normal((256, 256)).astype("float32")
    lowered = lower(network([weights]), TARGET)
    database = MemoryDatabase()
    for task in ms.relax_integration.extract_tasks(lowered, TARGET):
        mod = task.dispatched[0]
        if "matmul" in task.task_name:
            workload = database.commit_workload(mod)
            trace = panels_of_weights(mod).trace
            database.commit_tuning_record(TuningRecord(trace, workload, [1.0], TARGET))
    with TARGET:
        scheduled = lowering._schedule(lowered, database, TARGET)
    fetching = [name for name, f in lowering.kernels_of(scheduled).items() if FETCH in f.script()]
    assert len(fetching) == 1
    assert fetching[0].endswith("_prepacked")
    built = ModelBuilder(KernelObjects(TARGET), TARGET).build(lowered, database)
    image = np.random.default_rng(3).standard_normal((8, 256)).astype("float32")
    expected = (image.astype("float64") @ weights)[np.arange(1000) % 8]
    (found,) = CompiledModel(built)([image])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def panels_of_weights(mod):
    """A schedule that walks 8 times through each of 4 panels of packed weights."""
    schedule = Schedule(mod)
    product = schedule.get_sblock("matmul")
    rows, columns, summed = schedule.get_loops(product)
    panels, vectors, vector = schedule.split(columns, [4, 4, 16])
    schedule.reorder(panels, rows, summed, vectors, vector)
    schedule.vectorize(vector)
    schedule.decompose_reduction(product, summed)
    assert ms.postproc.RewriteLayout().apply(schedule)
    return schedule


def test_a_full_disk_while_linking_is_an_error_of_the_file_system(tmp_path, monkeypatch):
    def linking(message):
        def create(*_arguments, **_options):
            raise RuntimeError(message)

        return create

    words = f"Compilation error:\nld: final link failed: {os.strerror(errno.ENOSPC)}"
    monkeypatch.setattr(linked_model.cc, "create_shared", linking(words))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as found:
        linked_model._link(tmp_path / "model.so", [])
    assert found.value.errno == errno.ENOSPC
    assert found.value.filename == str(tmp_path / "model.so")
    monkeypatch.setattr(linked_model.cc, "create_shared", linking("ld: no such symbol"))
    with pytest.raises(RuntimeError, match="no such symbol"):
        linked_model._link(tmp_path / "model.so", [])

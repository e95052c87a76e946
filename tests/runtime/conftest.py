# SPDX-License-Identifier: Apache-2.0
"""Small libraries with descriptions, compiled by Relax."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm
from tvm import relax
from tvm.relax.op import add, matmul, nn
from tvm_droplet_ms.runtime.library_info import LibraryInfo, TensorInfo, append_info
from tvm_droplet_ms.runtime.shapes import Bucket, Buckets

WEIGHTS = np.random.default_rng(0).standard_normal((16, 8)).astype("float32")

Build = Callable[..., Path]


def relax_function(name: str, shapes: list[tuple], body: Callable, builder: Any) -> None:
    """Add a function of inputs of (shape, type) to a builder."""
    params = [relax.Var(f"x{i}", relax.TensorType(*each)) for i, each in enumerate(shapes)]
    with builder.function(name, params):
        with builder.dataflow():
            results = [builder.emit(each) for each in body(*params)]
            output = builder.emit_output(results[0] if len(results) == 1 else relax.Tuple(results))
        builder.emit_func_output(output)


def dense(x: Any) -> list[Any]:
    """One layer: ``relu(x @ WEIGHTS)``."""
    return [nn.relu(matmul(x, relax.const(WEIGHTS)))]


def dense_by_numpy(x: np.ndarray) -> np.ndarray:
    """The same by NumPy."""
    return np.maximum(x @ WEIGHTS, 0)


def info_of(inputs: list[tuple], outputs: list[tuple], **more: Any) -> LibraryInfo:
    """The description of a library of one shape."""
    bucket = Bucket(tuple(s for s, _ in inputs), tuple(s for s, _ in outputs))
    return LibraryInfo(
        **{
            "model": "small.onnx",
            "digest": "",
            "inputs": tuple(TensorInfo(f"x{i}", t) for i, (_, t) in enumerate(inputs)),
            "outputs": tuple(TensorInfo(f"y{i}", t) for i, (_, t) in enumerate(outputs)),
            "buckets": Buckets((bucket,)),
            "aliases": (),
            **more,
        }
    )


def write(mod: tvm.IRModule, info: LibraryInfo, path: Path) -> Path:
    """Compile a module to a library with a description."""
    tvm.compile(mod, target="llvm").export_library(str(path))
    append_info(path, info)
    return path


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compile functions ``{name: (inputs, body)}`` to a library with a description."""

    def build(functions: dict[str, tuple], info: LibraryInfo) -> Path:
        builder = relax.BlockBuilder()
        for name, (shapes, body) in functions.items():
            relax_function(name, shapes, body, builder)
        return write(builder.get(), info, tmp_path_factory.mktemp("library") / "model.so")

    return build


@pytest.fixture(scope="session")
def dense_library(build: Build) -> Path:
    """The library of ``dense`` for one row."""
    info = info_of([((1, 16), "float32")], [((1, 8), "float32")])
    return build({"main": ([((1, 16), "float32")], dense)}, info)


@pytest.fixture(scope="session")
def bucket_library(build: Build) -> Path:
    """The library of ``dense`` for 2 and for 4 rows."""
    buckets = Buckets(tuple(Bucket(((n, 16),), ((n, 8),)) for n in (2, 4)))
    info = info_of(
        [((2, 16), "float32")],
        [((2, 8), "float32")],
        buckets=buckets,
        functions=("main", "main_1"),
        why_not_padded="",
    )
    functions = {"main": ([((2, 16), "float32")], dense), "main_1": ([((4, 16), "float32")], dense)}
    return build(functions, info)


@pytest.fixture(scope="session")
def odd_library(build: Build) -> Path:
    """Outputs that are the input, a constant, and a sum; larger than what is always copied."""
    table = relax.const(np.arange(8192, dtype="float32"))
    sides = [((8192,), "float32")]
    info = info_of(sides, sides * 3, aliases=((0, 0), (1, None)), written=(0,))
    return build({"main": (sides, lambda x: [x, table, add(x, x)])}, info)

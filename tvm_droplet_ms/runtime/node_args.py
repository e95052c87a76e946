# SPDX-License-Identifier: Apache-2.0
"""A model's inputs, outputs and origin, as ONNX Runtime describes them. Imports no TVM."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .shapes import OpenShape

_ONNX_TYPES = {"float32": "float", "float64": "double"}
"""ONNX's names of types that differ from NumPy's."""


def numpy_type(name: str) -> str:
    """NumPy's name of a type such as ``"tensor(float)"``."""
    kind = name.removeprefix("tensor(").removesuffix(")")
    return {onnx: ours for ours, onnx in _ONNX_TYPES.items()}.get(kind, kind)


class NodeArg(NamedTuple):
    """An input or an output, as ONNX Runtime describes it.

    ``type``: such as ``"tensor(float)"``. ``shape``: for an extent that may vary the name that the
    model gives it, or None.
    """

    name: str
    type: str
    shape: list[int | str | None]


class ModelMetadata(NamedTuple):
    """What ONNX Runtime tells of a model; ``custom_metadata_map``: how the library was made."""

    graph_name: str
    custom_metadata_map: dict[str, str]
    producer_name: str = "tvm-droplet-ms"
    graph_description: str = ""
    description: str = ""
    domain: str = ""
    version: int = 1


def node_args(tensors: Sequence[Any], shapes: Sequence[Sequence[OpenShape]]) -> list[NodeArg]:
    """Describe tensors; ``shapes``: those of all of them, for each tuned shape."""
    found = []
    for place, tensor in enumerate(tensors):
        each = [shape[place] for shape in shapes]
        columns = list(zip(*each, strict=False))
        names = tensor.extents or (None,) * len(columns)
        extents: list[int | str | None] = [
            name if column[0] is None or len(set(column)) > 1 else column[0]
            for name, column in zip(names, columns, strict=False)
        ]
        kind = _ONNX_TYPES.get(tensor.dtype, tensor.dtype)
        found.append(NodeArg(tensor.name, f"tensor({kind})", extents))
    return found

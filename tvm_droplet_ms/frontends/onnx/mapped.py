# SPDX-License-Identifier: Apache-2.0
"""Weights of large ONNX files, read by mapping the file that they lie in.

A mapped weight is a ``TensorProto`` without values, whose ``location`` is an absolute path. All
copies of such a model share the pages of the file.
"""

import mmap
import os
import re
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

from ...runtime.library_file import UNMAP, release_pages
from .order import all_graphs

Array = np.ndarray[Any, Any]

LEAST_BYTES = 1 << 20
"""Smaller initializers are read."""

_files: dict[int, str] = {}
"""The paths of the mapped files by inode."""

_GRAPH, _INITIALIZER, _NAME, _RAW_DATA = 7, 5, 8, 9
"""Numbers of the fields ``ModelProto.graph``, ``GraphProto.initializer`` and of a tensor."""

_BYTES = 2
"""The wire type of strings, bytes and messages."""


def read_light(path: str) -> tuple[ModelProto, dict[str, tuple[int, int]]]:
    """Read an ONNX file without the values of its large initializers.

    Returns the model, and the place and the size of these values in the file, by name. Raises
    errors of protocol buffers or a ``ValueError`` if the file is none.
    """
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return ModelProto(), {}
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            light, places = _without_values(content)
    return ModelProto.FromString(light), places


def load_others(model: ModelProto, path: str, places: Mapping[str, tuple[int, int]]) -> None:
    """Complete a model of ``read_light``: map its large weights, and load its other external data.

    Raises errors of ONNX if external data cannot be read.
    """
    path = os.path.abspath(path)
    for tensor in model.graph.initializer:
        if tensor.name not in places:
            continue
        start, size = places[tensor.name]
        if _size(tensor) == size:
            _map(tensor, path, start, size)
        else:
            with open(path, "rb") as file:
                file.seek(start)
                tensor.raw_data = file.read(size)
    for graph in all_graphs(model.graph):
        for tensor in graph.initializer if graph is not model.graph else ():
            _load(tensor, path, maps=False)
        for node in graph.node:
            for attribute in node.attribute:
                for tensor in (attribute.t, *attribute.tensors):
                    _load(tensor, path, maps=False)
    for tensor in model.graph.initializer:
        _load(tensor, path, maps=True)


def _load(tensor: TensorProto, path: str, *, maps: bool) -> None:
    """Load the external data of a tensor beside ``path``, or map it if it is large."""
    if not is_external(tensor) or is_mapped(tensor):
        return
    folder = os.path.dirname(path)
    entries = {each.key: each.value for each in tensor.external_data}
    location = Path(folder, entries["location"])
    size = _size(tensor)
    # ONNX refuses a location outside the model's folder.
    is_inside = location.resolve().is_relative_to(Path(folder).resolve())
    start = int(entries.get("offset", 0))
    if maps and is_inside and location.is_file() and size >= LEAST_BYTES:
        if int(entries.get("length", size)) == size and start + size <= location.stat().st_size:
            _map(tensor, str(location), start, size)
            return
    onnx.external_data_helper.load_external_data_for_tensor(tensor, folder)
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]


def _map(tensor: TensorProto, path: str, start: int, size: int) -> None:
    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", path), ("offset", str(start)), ("length", str(size))):
        tensor.external_data.add(key=key, value=value)


def _size(tensor: TensorProto) -> int:
    """The bytes of a tensor's values; 0 for types of a few bits, and strings."""
    try:
        kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except KeyError:
        return 0
    is_packed = re.search(r"(int|float)[24](?!\d)", kind.name) is not None
    return 0 if kind.hasobject or is_packed else prod(tensor.dims) * kind.itemsize


def is_external(tensor: TensorProto) -> bool:
    """Return whether a tensor's values lie in a file."""
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def is_mapped(tensor: TensorProto) -> bool:
    """Return whether a tensor is mapped."""
    return is_external(tensor) and any(
        each.key == "location" and os.path.isabs(each.value) for each in tensor.external_data
    )


def array_of_tensor(tensor: TensorProto) -> Array:
    """Return the values of a tensor. A mapped one's are pages of the file, private to the process.

    Writing into the array does not change the file.
    """
    if not is_mapped(tensor):
        values: Array = onnx.numpy_helper.to_array(tensor)
        return values
    entries = {each.key: each.value for each in tensor.external_data}
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    _files[os.stat(entries["location"]).st_ino] = os.path.realpath(entries["location"])
    return np.memmap(
        entries["location"], kind, "c", int(entries["offset"]), tuple(tensor.dims)
    ).view(np.ndarray)


def release_mapped() -> None:
    """Give the pages of mapped weights back; those that are read come again.

    Nothing may have been written into the arrays.
    """
    release_pages(_files, "rw-p", UNMAP)


def mapped_weights(model: ModelProto) -> dict[str, Array]:
    """Return the mapped initializers of a model by name."""
    found = filter(is_mapped, model.graph.initializer)
    return {tensor.name: array_of_tensor(tensor) for tensor in found}


def _without_values(content: mmap.mmap) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """Cut the values of large initializers out of a serialized model.

    Returns the rest, and the place and the size of the values by the initializer's name.
    """
    places: dict[str, tuple[int, int]] = {}
    whole = bytearray()
    for number, start, value, end in _fields(content, 0, len(content)):
        if number != _GRAPH or value is None:
            whole += content[start:end]
            continue
        graph = bytearray()
        for inner, begin, tensor, stop in _fields(content, value, end):
            is_large = inner == _INITIALIZER and tensor is not None and stop - begin > LEAST_BYTES
            if not is_large or tensor is None:
                graph += content[begin:stop]
                continue
            rest, name, place = bytearray(), "", None
            for field, first, data, last in _fields(content, tensor, stop):
                if field == _RAW_DATA and data is not None and last - data >= LEAST_BYTES:
                    place = data, last - data
                    continue
                if field == _NAME and data is not None:
                    name = content[data:last].decode()
                rest += content[first:last]
            if place is not None:
                places[name] = place
            graph += _tagged(_INITIALIZER, rest)
        whole += _tagged(_GRAPH, graph)
    return bytes(whole), places


def _fields(content: mmap.mmap, place: int, end: int) -> Iterator[tuple[int, int, int | None, int]]:
    """Yield the fields of a message: number, start, start of its bytes (or None), and end."""
    while place < end:
        start = place
        key, place = _number(content, place)
        kind = key & 7
        value = None
        if kind == _BYTES:
            length, place = _number(content, place)
            value, place = place, place + length
        elif kind == 0:
            _, place = _number(content, place)
        elif kind in (1, 5):
            place += 8 if kind == 1 else 4
        else:
            raise ValueError("the file is no protocol buffer")
        if place > end:
            raise ValueError("the file ends within a field")
        yield key >> 3, start, value, place


def _number(content: mmap.mmap, place: int) -> tuple[int, int]:
    """Read a number of seven bits a byte; return it and the place after it."""
    value = shift = 0
    while True:
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, place


def _tagged(number: int, content: bytearray) -> bytes:
    """Return the bytes of a field that is a message."""
    out, length = bytearray([number << 3 | _BYTES]), len(content)
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    out.append(length)
    return bytes(out + content)

# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Writes large data into a shared library, once, behind what the linker has written.

An assembler and a linker would copy the data once each. Here they place a short mark, in a section
that x86-64 has for large data and that lies last in memory. The data then goes to the end of the
file, and the section's entries in the file's tables say so.
"""

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

MARK = b"tvm_droplet_ms: the data comes here"
"""What the linker places. It is the last of its section."""

_LOAD = 1
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_ELF64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"


class LayoutError(Exception):
    """The linker has laid the library out in another way."""


class _Segment(NamedTuple):
    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    file_size: int
    memory_size: int
    alignment: int


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def assembly(symbol: str) -> str:
    """The program, in GNU's assembly language, that places the mark under a symbol."""
    return f"""
    .section .lrodata, "al", @progbits
    .globl {symbol}
    .type {symbol}, @object
{symbol}:
    .ascii "{MARK.decode()}"
    .section .note.GNU-stack, "", @progbits
"""


def replace_mark(library: Path, pieces: Sequence[bytes | memoryview]) -> None:
    """Put data where the mark is.

    Parameters
    ----------
    library : Path
        The shared library, which was linked with ``assembly``. It is changed.
    pieces : Sequence[bytes | memoryview]
        The data, in pieces.

    Raises
    ------
    LayoutError
        If the mark is not the end of the segment that is last in memory. The library is unchanged.
    """
    size = sum(len(piece) for piece in pieces)
    with library.open("r+b") as file:
        header = _HEADER.unpack(file.read(_HEADER.size))
        if not header[0].startswith(_ELF64_LITTLE_ENDIAN):
            raise LayoutError(f"{library} is no library of 64 bits in little-endian order")
        segments = _table(file, _SEGMENT, header[5], header[10])
        sections = _table(file, _SECTION, header[6], header[12])
        loaded = [_Segment(*entry) for entry in segments if entry[0] == _LOAD]
        last = max(loaded, key=lambda segment: segment.address)
        file.seek(last.offset)
        before = file.read(last.file_size)
        if last.file_size != last.memory_size or not before.endswith(MARK):
            raise LayoutError(f"the data of {library} is not the end of its last segment")
        before = before[: -len(MARK)]
        # A page of the file is mapped as it is: offset and address agree in it.
        end = file.seek(0, os.SEEK_END)
        offset = end + (last.address - end) % last.alignment
        grown = last._replace(
            offset=offset, file_size=len(before) + size, memory_size=len(before) + size
        )
        where = segments.index(tuple(last))
        moved = {
            index: section._replace(
                offset=offset + section.address - last.address,
                size=section.size + size - len(MARK) if _ends(section, last) else section.size,
            )
            for index, section in enumerate(_Section(*entry) for entry in sections)
            if section.address and last.offset <= section.offset < last.offset + last.file_size
        }
        file.seek(offset)
        file.write(before)
        for piece in pieces:
            file.write(piece)
        file.seek(header[5] + where * _SEGMENT.size)
        file.write(_SEGMENT.pack(*grown))
        for index, section in moved.items():
            file.seek(header[6] + index * _SECTION.size)
            file.write(_SECTION.pack(*section))


def _table(file: BinaryIO, entry: struct.Struct, offset: int, count: int) -> list[tuple[int, ...]]:
    file.seek(offset)
    return list(entry.iter_unpack(file.read(count * entry.size)))


def _ends(section: _Section, segment: _Segment) -> bool:
    return section.address + section.size == segment.address + segment.file_size

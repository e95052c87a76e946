# SPDX-License-Identifier: Apache-2.0
"""A product of a few rows of bytes and packed weights of a few bits, by VNNI.

Each block of a row has a scale of its own, as ``accuracy_level=4`` of ONNX Runtime's
``MatMulNBits`` asks for (``mlas/lib/sqnbitgemm.h``). Sums of a block are exact. The kernel reads
weights as fast as the memory has them, and there is nothing to search.
"""

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from .packing import LANES, TOGETHER

_DOT = "llvm.x86.avx512.vpdpbusd.512"
_MOST_SUMS = 4
"""The vectors of sums that were fastest, rows times panels."""


def byte_product(types: Sequence[Any], bits: int) -> tirx.PrimFunc:
    """Make the kernel, which is scheduled.

    - ``types``: those of the rows as bytes, (rows, depth); of the scale and the sum of each block
      of them, (rows, blocks); and of the words, scales and offsets of ``Packed``.
    - ``bits``: of a number.

    It returns values of shape (rows, columns), the columns of all panels.
    """
    names = ("x", "of_blocks", "sums", "words", "scales", "offsets")
    shapes = [[int(extent) for extent in kind.shape] for kind in types]
    rows, (panels, blocks, count, _) = shapes[0][0], shapes[3]
    together = max(n for n in (1, 2, 4) if n * rows <= max(rows, _MOST_SUMS) and panels % n == 0)
    each = [(m, p) for m in range(rows) for p in range(together)]
    groups = 8 // bits
    depth = shapes[0][1] // blocks
    mask = tirx.const(int.from_bytes(bytes([(1 << bits) - 1] * 4), "little", signed=True), "int32")
    lanes = tirx.Ramp(0, 1, LANES)

    def wide(value: Any) -> Any:
        return tirx.Broadcast(value, LANES)

    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            x, of_blocks, sums, words, scales, offsets = (
                T.arg(name, T.Buffer(shape, str(kind.dtype)))
                for name, shape, kind in zip(names, shapes, types, strict=True)
            )
            result = T.arg("result", T.Buffer((rows, panels * LANES), "float32"))
            # TVM looks for a block inside the outermost one (``split_layout_rewrite_preproc.cc``).
            with T.sblock("root"), T.sblock("byte_product"):
                T.reads(*(_whole(b, s) for b, s in zip((x, of_blocks, sums), shapes)))
                T.writes(_whole(result, (rows, panels * LANES)))
                with T.parallel(0, panels // together) as outer:
                    total, part = (
                        T.alloc_buffer((rows, together, LANES), kind, scope="local")
                        for kind in ("float32", "int32")
                    )
                    for m, p in each:
                        T.buffer_store(total, wide(tirx.const(0, "float32")), [m, p, lanes])
                    with T.serial(0, blocks) as block:
                        for m, p in each:
                            T.buffer_store(part, wide(tirx.const(0, "int32")), [m, p, lanes])
                        with T.serial(0, count) as word:
                            for p in range(together):
                                packed = words[outer * together + p, block, word, lanes]
                                for group in range(groups):
                                    own = packed >> wide(tirx.const(group * bits, "int32"))
                                    own = tirx.reinterpret("int8x64", own & wide(mask))
                                    first = block * depth + (word * groups + group) * TOGETHER
                                    for m in range(rows):
                                        four = x.vload([m, first], f"int8x{TOGETHER}")
                                        four = wide(tirx.reinterpret("int32", four))
                                        dot = tirx.call_llvm_pure_intrin(
                                            f"int32x{LANES}",
                                            _DOT,
                                            part[m, p, lanes],
                                            own,
                                            tirx.reinterpret("int8x64", four),
                                        )
                                        T.buffer_store(part, dot, [m, p, lanes])
                        for m, p in each:
                            at = (outer * together + p, block, lanes)
                            value = part[m, p, lanes].astype(f"float32x{LANES}") * scales[at]
                            value = value - wide(sums[m, block]) * offsets[at]
                            value = total[m, p, lanes] + wide(of_blocks[m, block]) * value
                            T.buffer_store(total, value, [m, p, lanes])
                    for m, p in each:
                        column = (outer * together + p) * LANES
                        to = [m, tirx.Ramp(column, 1, LANES)]
                        T.buffer_store(result, total[m, p, lanes], to)
        kernel = builder.get()
    return kernel.with_attrs({"tirx.noalias": True, "tirx.is_scheduled": True})


def _whole(buffer: Any, shape: Sequence[int]) -> Any:
    """The region of a buffer that is all of it."""
    return buffer[tuple(slice(0, extent) for extent in shape)]

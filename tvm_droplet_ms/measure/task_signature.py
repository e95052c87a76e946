# SPDX-License-Identifier: Apache-2.0
"""The signature of a candidate's task, read from its module."""

import hashlib
import json
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

from tvm_ffi.structural import structural_walk

from tvm.ir import Call, IRModule
from tvm.ir.prim.expr import Add, Cast, Div, Max, Min, Mul, Select, Sub
from tvm.target import Target

_OPERATIONS = (Add, Call, Cast, Div, Max, Min, Mul, Select, Sub)

_OUR_MARKS = "tvm_droplet_ms."
"""Prefix of the function attributes that mark kernels which this package times differently."""

_FILE = "task"


def write_task(folder: str, signature: str) -> None:
    """Write the signature of a candidate's task to its folder, for the runner."""
    Path(folder, _FILE).write_text(signature)


def read_task(folder: str) -> str:
    """Read the signature in a candidate's folder; empty if another builder made the artifact."""
    path = Path(folder, _FILE)
    return path.read_text() if path.is_file() else ""


def arguments_signature(args_info: Sequence[Any]) -> str:
    """Return the properties of a candidate's arguments that no schedule changes.

    ``args_info``: the arguments, in the format of ``ArgInfo.as_json``. Returns the type and the
    number of elements of each argument, and the shape of the last argument, the output. A schedule
    may change the layout of weights (``layout_free_buffers``), and so their shape.
    """
    sizes = [(str(dtype), prod(map(int, shape))) for _, dtype, shape in args_info]
    output = [int(extent) for extent in args_info[-1][2]] if args_info else []
    return json.dumps([sizes, output])


def task_signature(mod: IRModule, target: Target) -> str:
    """Hash the properties of a scheduled module that no schedule changes.

    MetaSchedule tells neither its builder nor its runner which task a candidate belongs to. The
    signature covers the target, the functions' names and marks, and the kinds of floating-point
    operations in them. Candidates of one task have different signatures only if an intrinsic
    replaced operations. The runner also compares the arguments. It cannot distinguish two tasks
    with equal arguments that use the same floating-point operations, or only integers, and may then
    give up the slower task's candidates after one call. The hash is the same in every process.
    """
    functions = []
    for variable, function in mod.functions.items():
        operations: set[str] = set()

        def add(node: Any, operations: set[str] = operations) -> None:
            # Skip integer operations: a schedule also computes indices with them.
            if str(node.ty).startswith(("float", "bfloat")):
                operations.add(str(node.op.name) if isinstance(node, Call) else type(node).__name__)

        structural_walk(function.body, (_OPERATIONS, add))
        attributes = function.attrs.keys() if function.attrs else ()
        marks = [str(name) for name in attributes if str(name).startswith(_OUR_MARKS)]
        functions.append([str(variable.name_hint), sorted(operations), sorted(marks)])
    text = json.dumps([str(target), sorted(functions)])
    return hashlib.sha256(text.encode()).hexdigest()

# SPDX-License-Identifier: Apache-2.0
"""Readable names of the sampled decisions of a trace. Imports no TVM.

A trace numbers its variables: ``["SamplePerfectTile", ["l3"], [4, 64], ["v10", ...]]`` tiles the
loop ``l3``. Earlier instructions define ``l3``.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

_PARALLEL = "meta_schedule.parallel"
_USES = {
    "meta_schedule.unroll_explicit": "unrolling",
    "meta_schedule.unroll_implicit": "unrolling",
    "meta_schedule.vectorize": "vectorization",
    _PARALLEL: "parallel loops",
}


def is_parallel_extent(instruction: Sequence[Any]) -> bool:
    """True if an instruction is a parallel annotation with a constant, which searches change."""
    kind, inputs, attributes, _ = instruction
    is_parallel = kind == "Annotate" and list(attributes[:1]) == [_PARALLEL]
    return is_parallel and isinstance(inputs[1], int)


def decision_names(instructions: Sequence[Any]) -> dict[int, str]:
    """Name the decisions of a trace.

    ``instructions``: the instructions as stored in a record: kind, inputs, attributes, outputs.
    Returns distinct names, such as "tile of matmul, loop 2", by the index of the instruction. The
    constant of a parallel annotation counts as a decision.
    """
    variables: dict[str, str] = {}
    names: dict[int, str] = {}
    for place, (kind, inputs, attributes, outputs) in enumerate(instructions):
        known = [variables.get(str(each), "") for each in inputs]
        first = next(filter(None, known), "")
        if kind == "GetSBlock":
            variables |= _block(attributes, outputs)
        elif kind == "GetLoops":
            for number, loop in enumerate(outputs):
                variables[str(loop)] = f"{first or 'a block'}, loop {number}"
        elif kind == "Fuse":
            for loop in outputs:
                variables[str(loop)] = f"{first.partition(',')[0] or 'a block'}, fused loops"
        elif kind in ("SamplePerfectTile", "SamplePartitionedTile"):
            names[place] = f"tile of {first or 'a loop'}"
        elif kind == "SampleComputeLocation":
            names[place] = f"place of {first or 'a block'}"
        elif kind.startswith("Sample"):
            names[place] = _use(instructions, outputs)
        elif kind == "Annotate":
            if is_parallel_extent(instructions[place]):
                names[place] = _USES[_PARALLEL]
        else:
            # Blocks derived from a block, such as a cache or part of a reduction, take its name.
            for output in outputs:
                variables[str(output)] = first
    counts = Counter(names.values())
    return {
        place: name if counts[name] == 1 else f"{name} (instruction {place})"
        for place, name in names.items()
    }


def _block(attributes: Sequence[Any], outputs: Sequence[Any]) -> dict[str, str]:
    return {str(output): str(attributes[0]) for output in outputs if attributes}


def _use(instructions: Sequence[Any], outputs: Sequence[Any]) -> str:
    """The purpose of a sampled value."""
    values = set(map(str, outputs))
    for kind, inputs, attributes, _ in instructions:
        if values.isdisjoint(map(str, inputs)):
            continue
        if kind == "Annotate":
            key = str(attributes[0])
            return _USES.get(key, key.rpartition(".")[2].replace("_", " "))
        return "length of a loop" if kind == "Split" else f"choice for {kind}"
    return "choice"

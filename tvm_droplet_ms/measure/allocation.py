# SPDX-License-Identifier: Apache-2.0
"""Allocates the arguments that candidates are timed on: given values, zeros, and random floats.

TVM fills all arguments with random numbers, including integers. A kernel that uses these integers
as indices then accesses memory out of bounds, and its process crashes.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tvm
from tvm.rpc import RPCSession
from tvm.runtime import Device, Tensor
from tvm.s_tir.meta_schedule.runner import local_runner, rpc_runner

_INTEGERS = frozenset({"bool", *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64))})

Fill = Callable[[Device, Any, int], Any]


def is_integer(info: Any) -> bool:
    """True if an argument, in the format of ``ArgInfo.as_json``, holds integers or booleans."""
    return info[0] == "TENSOR" and str(info[1]) in _INTEGERS


def allocate_safely(
    device: Device,
    args_info: Any,
    alloc_repeat: int,
    fill: Fill = local_runner.default_alloc_argument,
) -> list[list[Tensor]]:
    """Allocate sets of arguments; ``f_alloc_argument`` of a ``PromptRunner``.

    Integers and booleans are 0, a valid index into every axis. ``fill`` allocates other arguments.
    """

    def allocate(info: Any) -> Tensor:
        if not is_integer(info):
            ((tensor,),) = fill(device, [info], 1)
            return tensor
        shape = [int(extent) for extent in info[2]]
        return tvm.runtime.tensor(np.zeros(shape, str(info[1])), device)

    return [[allocate(info) for info in args_info] for _ in range(alloc_repeat)]


def allocate_safely_on_server(
    session: RPCSession, device: Device, args_info: Any, alloc_repeat: int
) -> list[list[Tensor]]:
    """Allocate arguments on a server; ``f_alloc_argument`` of a ``FleetRunner``."""

    def fill(device: Device, info: Any, count: int) -> Any:
        return rpc_runner.default_alloc_argument(session, device, info, count)

    return allocate_safely(device, args_info, alloc_repeat, fill)


def save_arrays(path: Path, arrays: Mapping[int, np.ndarray]) -> None:
    """Write arrays by position, as bytes: NumPy's files lose dtypes that it lacks, as bfloat16."""
    content: dict[str, Any] = {
        str(place): np.frombuffer(array.tobytes(), np.uint8) for place, array in arrays.items()
    }
    np.savez(path, **content)


def read_array(content: Any, place: int, dtype: Any, shape: Sequence[int]) -> np.ndarray:
    """Read an array of an opened file of ``save_arrays``; it may not be written to."""
    return np.frombuffer(content[str(place)], dtype).reshape(shape)


class GivenArguments:
    """Allocates arguments, some of them with given values.

    A runner sends this object to its worker with every candidate, so the values are in a file.
    ``path``: the file to write. ``values``: the values, by the position of their argument. An
    argument whose layout the schedule changed is filled like the others. Raises ``OSError`` if the
    file cannot be written.
    """

    def __init__(self, path: Path, values: Mapping[int, np.ndarray]) -> None:
        self._path = str(path)
        self._values = {place: (v.dtype, list(v.shape)) for place, v in values.items()}
        save_arrays(path, values)

    def __call__(self, *arguments: Any) -> list[list[Tensor]]:
        """Allocate arguments; see ``allocate_safely``. On a server, the session comes first."""
        *session, device, args_info, alloc_repeat = arguments
        allocate: Callable[..., Any] = allocate_safely_on_server if session else allocate_safely
        sets: list[list[Tensor]] = allocate(*session, device, args_info, alloc_repeat)
        with np.load(self._path) as content:
            for place, (dtype, shape) in self._values.items():
                info = args_info[place]
                if [str(info[1]), [int(extent) for extent in info[2]]] != [str(dtype), shape]:
                    continue
                values = read_array(content, place, dtype, shape)
                for one in sets:
                    one[place] = tvm.runtime.tensor(values.copy(), device)
        return sets

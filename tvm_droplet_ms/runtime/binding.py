# SPDX-License-Identifier: Apache-2.0
"""Arrays that stay bound to a session between its runs. Imports no TVM."""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .errors import SessionError
from .node_args import numpy_type


class BoundValue(NamedTuple):
    """An output of a run, as ONNX Runtime's ``OrtValue`` gives it."""

    array: Any

    def numpy(self) -> Any:
        """The array."""
        return self.array


class IOBinding:
    """Arrays bound to a session's inputs and outputs; ``session.io_binding()`` makes one.

    The methods have the forms of ONNX Runtime's. An ``OrtValue`` on the CPU is bound where it is.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self.inputs: dict[str, Any] = {}
        self.targets: dict[str, np.ndarray] = {}
        self.outputs: list[Any] = []

    def bind_cpu_input(self, name: str, value: Any) -> None:
        """Bind an array or a tensor: each run reads what is in it then."""
        self.inputs[name] = value

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Bind the memory at an address. Raises ``SessionError`` for a device but the CPU."""
        del device_id
        self.inputs[name] = _array_at(name, device_type, element_type, shape, buffer_ptr)

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """Bind the memory of an ``OrtValue``."""
        self.inputs[name] = _array_of(name, ortvalue)

    def bind_output(
        self,
        name: str,
        device_type: np.ndarray | str | None = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind an output; ``device_type``: an array to write it to, or the name of the CPU.

        With an address, the output is written there. Raises ``SessionError`` for an unknown name,
        an array of another type or shape, or an address on another device.
        """
        del device_id
        target: Any = device_type
        if buffer_ptr is not None:
            target = _array_at(name, str(device_type), element_type, shape or (), buffer_ptr)
        self._session.check_output(name, target)
        if isinstance(target, np.ndarray):
            self.targets[name] = target
        else:
            self.targets.pop(name, None)

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """Bind the memory of an ``OrtValue`` to write an output to."""
        self.bind_output(name, _array_of(name, ortvalue))

    def clear_binding_inputs(self) -> None:
        """Forget the bound inputs."""
        self.inputs = {}

    def clear_binding_outputs(self) -> None:
        """Forget the arrays that outputs are written to."""
        self.targets = {}

    def synchronize_inputs(self) -> None:
        """Do nothing: the memory is the CPU's."""

    def synchronize_outputs(self) -> None:
        """Do nothing: the memory is the CPU's."""

    def get_outputs(self) -> list[BoundValue]:
        """The outputs of the last run, in order; ``numpy()`` of each is its array."""
        return [BoundValue(each) for each in self.outputs]

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run, in order, as arrays."""
        return list(self.outputs)


def _array_of(name: str, ortvalue: Any) -> Any:
    if isinstance(ortvalue, BoundValue):
        return ortvalue.array
    dtype = numpy_type(ortvalue.data_type())  # ``numpy()`` would copy the values.
    return _array_at(
        name, ortvalue.device_name(), dtype, ortvalue.shape(), ortvalue.data_ptr(), ortvalue
    )


def _array_at(
    name: str,
    device: str,
    dtype: Any,
    shape: Sequence[int],
    address: int,
    owner: Any = None,
) -> np.ndarray:
    """An array of the memory at an address, which keeps ``owner`` alive."""
    if device.lower() != "cpu":
        raise SessionError(f"{name!r} is bound on {device!r}: expected memory of 'cpu'")
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    memory = (ctypes.c_uint8 * size).from_address(address)
    memory.owner = owner
    return np.frombuffer(memory, kind).reshape(shape)

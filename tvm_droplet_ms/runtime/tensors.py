# SPDX-License-Identifier: Apache-2.0
"""TVM's tensors from arrays and back, without copies where alignment allows. Imports no TVM."""

import ctypes
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .errors import SessionError
from .tvm_runtime import tvm_runtime

_ALIGNMENT = 64
"""The alignment in bytes that the kernels expect of tensors."""

_COPIED_BYTES = 1 << 14
"""An array of at most this size is copied: that is cheaper than a look at its address."""

_NUMPY_TYPES = frozenset(
    ["bool", "float16", "float32", "float64"]
    + [f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)]
)

_torch_names: dict[Any, str] = {}
"""The names of PyTorch's types that were seen; TVM's tensor takes long to say it."""


class Slot:
    """Aligned memory for an input; ``array`` is the memory as an array of the input's type."""

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self._shape, self._dtype = shape, dtype
        self._tensor: Any = None
        self._array: Any = None

    @property
    def array(self) -> np.ndarray:
        """The memory, of zeros until it is written."""
        if self._tensor is None:
            self._tensor = _allocate(self._shape, self._dtype)
            self._array = array_of(self._tensor)
            self._array[...] = 0
        found: np.ndarray = self._array
        return found

    def load(self, value: Any, *, keeps: bool) -> Any:
        """The tensor of a value: the value's own memory if ``keeps`` and if it is aligned."""
        if type(value) is not np.ndarray:
            tensor = value.tensor
            if keeps and tensor.data_ptr() % _ALIGNMENT == 0:
                return tensor
            self.array
            tvm_runtime().get_global_func("runtime.TVMTensorCopyFromTo")(tensor, self._tensor)
            return self._tensor
        if keeps and value.nbytes > _COPIED_BYTES and (own := _shared(value)) is not None:
            return own
        self.array[...] = value
        return self._tensor

    def restore(self, value: Any) -> None:
        """Copy the memory back to a value that was loaded by a copy."""
        if type(value) is np.ndarray:
            if value.nbytes <= _COPIED_BYTES or _shared(value) is None:
                value[...] = self._array
        elif value.tensor.data_ptr() % _ALIGNMENT:
            tvm_runtime().get_global_func("runtime.TVMTensorCopyFromTo")(self._tensor, value.tensor)


class TorchTensor:
    """A PyTorch tensor: its shape, and the same memory as TVM's tensor."""

    def __init__(self, tensor: Any, shape: tuple[int, ...]) -> None:
        self.tensor, self.shape = tensor, shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(array_of(self.tensor), dtype=dtype)


def is_torch(value: Any) -> bool:
    """Return whether a value is a PyTorch tensor. Imports no PyTorch."""
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)


def tensor_of(value: Any, dtype: str) -> Any:
    """A number, a list, or a tensor of another library as an array or a ``TorchTensor``.

    Raises ``SessionError`` for another type or device, or for a value that is not a tensor.
    """
    if not is_torch(value):
        return _array(value, dtype)
    try:
        own = value.detach() if value.requires_grad else value
        if own.is_neg() or own.is_conj() or not own.is_contiguous():
            own = own.resolve_neg().resolve_conj().contiguous()
        tensor = tvm_runtime().from_dlpack(own)
        name = _torch_names.get(own.dtype) or _torch_names.setdefault(own.dtype, str(tensor.dtype))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise SessionError(f"a PyTorch tensor cannot be read by DLPack: {error}") from error
    if name != dtype or not own.is_cpu:
        raise SessionError(
            f"a tensor of the type {tensor.dtype} on {tensor.device}: expected {dtype} on the CPU"
        )
    return TorchTensor(tensor, tuple(own.shape))


def check_changeable(value: Any, name: str) -> None:
    """Raise ``SessionError`` unless a bound value can be changed where it is."""
    if is_torch(value):
        if value.is_contiguous():
            return
        reason = "a PyTorch tensor with strides"
    elif type(value) is np.ndarray:
        if value.flags.writeable:
            return
        reason = "a read-only array"
    else:
        reason = f"a {type(value).__name__}"
    raise SessionError(
        f"input {name!r} is {reason}, and the model changes it: bind a writable NumPy array or a "
        "contiguous PyTorch tensor"
    )


def tensor_from(array: np.ndarray) -> Any:
    """A copy of an array as a tensor in aligned memory of its own."""
    tensor = _allocate(array.shape, array.dtype.name)
    array_of(tensor)[...] = array
    return tensor


def flat(output: Any) -> list[Any]:
    """The tensors of nested tuples of outputs, in order."""
    if hasattr(output, "dtype"):
        return [output]
    return [tensor for part in output for tensor in flat(part)]


def array_of(tensor: Any) -> np.ndarray:
    """A tensor as an array of the same memory."""
    return converter(str(tensor.dtype))(tensor)


def converter(dtype: str) -> Callable[[Any], np.ndarray]:
    """A function that makes an array of a tensor's memory, for tensors of one type."""
    if dtype in _NUMPY_TYPES:
        return np.from_dlpack
    kind = numpy_type(dtype)

    def convert(tensor: Any) -> np.ndarray:
        shape = tuple(int(extent) for extent in tensor.shape)
        if 0 in shape:
            return np.empty(shape, kind)
        size = math.prod(shape) * kind.itemsize
        memory: Any = (ctypes.c_uint8 * size).from_address(tensor.data_ptr())
        # The array keeps this object alive, and the object keeps the tensor alive.
        memory.tensor = tensor
        seen: np.ndarray = np.frombuffer(memory, np.uint8).view(kind).reshape(shape)
        return seen

    return convert


def numpy_type(name: str) -> np.dtype[Any]:
    """NumPy's type of a name, or that of ml_dtypes, as for "bfloat16"."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found


def torch_of(tensor: Any) -> Any:
    """A tensor as PyTorch's, of the same memory."""
    # PyTorch does not ask a capsule for its device, which takes longer than the rest.
    return sys.modules["torch"].from_dlpack(tensor.__dlpack__())


def _array(value: Any, dtype: str) -> np.ndarray:
    """An array of a NumPy number, an array's subclass, a tensor, or Python's numbers and lists."""
    try:
        if value is None:  # NumPy reads it as a NaN.
            raise TypeError("there is no value")
        if isinstance(value, np.ndarray | np.generic):
            given = np.asarray(value)
        elif hasattr(value, "__dlpack__"):
            given = np.from_dlpack(value)
        else:  # Python's own numbers have no type of their own.
            return np.asarray(value, dtype=numpy_type(dtype))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise SessionError(
            f"a {type(value).__name__} cannot be read as {dtype} ({error}): expected an array"
        ) from error
    if str(given.dtype) != dtype:
        raise SessionError(f"an array of the type {given.dtype}: expected {dtype}")
    return given


def _allocate(shape: tuple[int, ...], dtype: str) -> Any:
    ffi = tvm_runtime()
    allocate = ffi.get_global_func("runtime.TVMTensorAllocWithScope")
    return allocate(ffi.Shape(shape), ffi.dtype(dtype), ffi.device("cpu", 0), None)


def _shared(array: np.ndarray) -> Any:
    """A tensor of an array's own memory; None if it is not aligned, dense and writable."""
    flags = array.flags
    if not (flags.c_contiguous and flags.writeable) or str(array.dtype) not in _NUMPY_TYPES:
        return None
    tensor = tvm_runtime().from_dlpack(array)
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else None

# SPDX-License-Identifier: Apache-2.0
"""A tuned library as a session with the interface of ONNX Runtime's. Imports no TVM."""

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .binding import IOBinding
from .errors import SessionError
from .library_info import LibraryInfo, cpu_flags, read_info
from .loading import check_python_functions, file_of, load_library, start_machine
from .node_args import ModelMetadata, NodeArg, node_args
from .shapes import Shapes, cut, is_of, padded
from .tensors import (
    Slot,
    TorchTensor,
    check_changeable,
    converter,
    flat,
    numpy_type,
    tensor_of,
    torch_of,
)
from .tvm_runtime import tvm_runtime, use_threads


class InferenceSession:
    """A tuned library, loaded to be run.

    The interface is that of ``onnxruntime.InferenceSession``: a program changes the import and the
    file. Calls from several threads run one after another; sessions run beside each other.

    Parameters
    ----------
    path : str | os.PathLike[str] | bytes
        The library that ``droplet-ms tune`` or ``result.export`` wrote, or its content.
    sess_options : Any
        ONNX Runtime's ``SessionOptions``. Its ``intra_op_num_threads``, if positive, is `threads`.
    providers, provider_options : Any
        Accepted and ignored, as in ``providers=["CPUExecutionProvider"]``.
    threads : int, optional
        The number of threads. Defaults to the number that the model was tuned for.

    Raises
    ------
    SessionError
        If the file is not a library of a tuned model, or the CPU lacks what it was tuned for.

    Examples
    --------
    .. code-block:: python

        from tvm_droplet_ms import InferenceSession

        session = InferenceSession("model.so")
        (logits,) = session.run(None, {session.get_inputs()[0].name: image})
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | bytes,
        sess_options: Any = None,
        providers: Any = None,
        provider_options: Any = None,
        *,
        threads: int | None = None,
    ) -> None:
        del providers, provider_options
        with file_of(path) as name:
            self._load(name, sess_options, threads)

    def _load(self, path: str | os.PathLike[str], sess_options: Any, asked: int | None) -> None:
        info = read_info(path)
        if refusal := info.refusal(cpu_flags()):
            raise SessionError(refusal)
        if asked is None:
            asked = getattr(sess_options, "intra_op_num_threads", 0) or None
        library = load_library(path)
        try:
            self._open(library.module, info, asked)
        except RuntimeError as error:
            check_python_functions(path, error)
            self._open(library.module, info, asked)
        library.release_pages()

    @classmethod
    def of_module(
        cls, module: Any, info: LibraryInfo, threads: int | None = None
    ) -> "InferenceSession":
        """Make a session of a module in memory: a ``VMExecutable``'s, with its description."""
        session = cls.__new__(cls)
        session._open(module, info, threads)
        return session

    def _open(self, module: Any, info: LibraryInfo, threads: int | None) -> None:
        self.info = info
        tuned = min(info.threads, os.cpu_count() or 1)
        self.threads = tuned if threads is None else _checked_threads(threads)
        use_threads(self.threads)
        self._lock = threading.Lock()
        self._tensor = tvm_runtime().Tensor
        # The machine owns the functions' memory.
        self._machine = start_machine(module)
        self._input_names = tuple(each.name for each in info.inputs)
        self._places = {each.name: place for place, each in enumerate(info.outputs)}
        self._dtypes = tuple(numpy_type(each.dtype) for each in info.inputs)
        self._converters = [converter(each.dtype) for each in info.outputs]
        self._written = frozenset(info.written)
        unknown = [(place, None) for place in range(len(info.outputs))]
        self._aliases = unknown if info.aliases is None else info.aliases
        self._entries = {
            bucket.inputs: _Entry(
                self._machine[name],
                [
                    Slot(shape, each.dtype)
                    for shape, each in zip(bucket.inputs, info.inputs, strict=True)
                ],
            )
            for name, bucket in zip(info.functions, info.buckets.buckets, strict=True)
        }
        self._cuts = info.buckets.cuts() or {}

    def get_inputs(self) -> list[NodeArg]:
        """The inputs in order."""
        return node_args(self.info.inputs, [each.inputs for each in self.info.buckets.buckets])

    def get_outputs(self) -> list[NodeArg]:
        """The outputs in order."""
        return node_args(self.info.outputs, [each.outputs for each in self.info.buckets.buckets])

    def get_providers(self) -> list[str]:
        """The devices that run the model: the CPU."""
        return ["CPUExecutionProvider"]

    def get_modelmeta(self) -> ModelMetadata:
        """The model's name, and how the library was made."""
        made = {"digest": self.info.digest, "target": self.info.target, **self.info.versions}
        return ModelMetadata(self.info.model, made)

    def empty_input(self, name: str, shape: Sequence[int] | None = None) -> np.ndarray:
        """Make an array of zeros for an input, aligned so that a run reads it without a copy.

        ``shape``: that of the array, if the library has several. Raises ``SessionError`` for an
        unknown name or shape.
        """
        if name not in self._input_names:
            raise self._wrong_names([name])
        place = self._input_names.index(name)
        given = sorted({each.inputs[place] for each in self.info.buckets.buckets})
        chosen = given[0] if shape is None else tuple(shape)
        if chosen not in given or (shape is None and len(given) > 1):
            raise SessionError(
                f"input {name!r}, shape={shape}: expected one of {', '.join(map(str, given))}"
            )
        return Slot(chosen, self.info.inputs[place].dtype).array

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[Any]:
        """Run the model.

        Parameters
        ----------
        output_names : Sequence[str] | None
            The outputs to return, in this order; None for all.
        input_feed : Mapping[str, Any]
            The inputs by name: NumPy arrays, numbers, or tensors with DLPack. Aligned arrays are
            read where they are. None is changed.
        run_options : Any
            Ignored.

        Returns
        -------
        outputs : list[Any]
            NumPy arrays; PyTorch tensors if an input is one.

        Raises
        ------
        SessionError
            If a name, a type or a shape is wrong.
        """
        del run_options
        if not isinstance(input_feed, Mapping):
            raise SessionError(
                f"input_feed is a {type(input_feed).__name__}: expected a dict of arrays by the "
                f"names {', '.join(self._input_names) or 'of no inputs'}"
            )
        chosen = self._chosen(output_names) if output_names else None
        outputs = self._call(self._values(input_feed))
        return outputs if chosen is None else [outputs[place] for place in chosen]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: Any = None,
    ) -> None:
        """Run the model in a thread; it calls ``callback(outputs, user_data, error)``.

        ``error``: what went wrong, with no outputs; "" otherwise.
        """

        def work() -> None:
            outputs, error = [], ""
            try:
                outputs = self.run(output_names, input_feed, run_options)
            except Exception as raised:  # The caller is told of each.
                error = str(raised) or type(raised).__name__
            callback(outputs, user_data, error)

        threading.Thread(target=work).start()

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """Run the model on its inputs in order; as ``run``."""
        if len(values) != len(self._input_names):
            raise SessionError(
                f"{len(values)} inputs are given: expected {', '.join(self._input_names) or 'none'}"
            )
        return self._call(list(values))

    def io_binding(self) -> IOBinding:
        """Make a binding of arrays, for loops that pass the same arrays again."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Run the model on bound arrays.

        An input that the model changes, such as a decoder's cache, is changed where it is.
        Raises ``SessionError`` as ``run`` does.
        """
        del run_options
        values = self._values(iobinding.inputs)
        iobinding.outputs = self._call(values, in_place=True)
        for name, array in iobinding.targets.items():
            found = iobinding.outputs[self._places[name]]
            if found.shape != array.shape:
                raise SessionError(
                    f"output {name!r} is {tuple(found.shape)} this time, and does not fit the "
                    f"array that it is bound to, {array.shape}"
                )
            np.copyto(array, found)
            iobinding.outputs[self._places[name]] = array

    def check_output(self, name: str, array: Any) -> None:
        """Raise ``SessionError`` unless there is such an output, and an array could hold it."""
        (place,) = self._chosen([name])
        shapes = [bucket.outputs[place] for bucket in self.info.buckets.buckets]
        dtype = numpy_type(self.info.outputs[place].dtype)
        if isinstance(array, np.ndarray) and (
            array.dtype != dtype or not any(is_of(array.shape, each) for each in shapes)
        ):
            raise SessionError(
                f"output {name!r} cannot be written to an array of {array.dtype} "
                f"{array.shape}: expected {dtype} {' or '.join(map(str, shapes))}"
            )

    def _values(self, given: Mapping[str, Any]) -> list[Any]:
        try:
            values = [given[name] for name in self._input_names]
        except KeyError:
            raise self._wrong_names(given) from None
        if len(given) != len(values):
            raise self._wrong_names(given)
        return values

    def _chosen(self, names: Sequence[str]) -> list[int]:
        if isinstance(names, str):
            raise SessionError(f"output_names={names!r}: expected a list of names, [{names!r}]")
        for name in names:
            if name not in self._places:
                raise SessionError(
                    f"output {name!r} is unknown: the model has {', '.join(self._places)}"
                )
        return [self._places[name] for name in names]

    def _call(self, values: list[Any], *, in_place: bool = False) -> list[Any]:
        """Run the model; ``in_place``: whether changed inputs are changed where they are."""
        gives_torch, given = False, list(values) if in_place else values
        for place, value in enumerate(values):
            if in_place and place in self._written:
                check_changeable(value, self._input_names[place])
            if type(value) is not np.ndarray:
                try:
                    values[place] = tensor_of(value, self.info.inputs[place].dtype)
                except SessionError as error:
                    raise SessionError(f"input {self._input_names[place]!r}: {error}") from error
                gives_torch = gives_torch or type(values[place]) is TorchTensor
            elif value.dtype != self._dtypes[place]:
                raise self._wrong_type(place, str(value.dtype))
        shapes = tuple([value.shape for value in values])
        with self._lock:
            use_threads(self.threads)
            entry = self._entries.get(shapes)
            if entry is None:
                cropped = self._call_padded(values, shapes, in_place)
                return [torch_of(array) for array in cropped] if gives_torch else list(cropped)
            tensors = []
            for place, value in enumerate(values):
                slot = entry.slots[place]
                tensors.append(slot.load(value, keeps=in_place or place not in self._written))
            output = entry.function(*tensors)
            if in_place:
                for place in self._written:
                    entry.slots[place].restore(values[place])
            outputs = [output] if isinstance(output, self._tensor) else flat(output)
            found: list[Any]
            if gives_torch:
                found = [torch_of(tensor) for tensor in outputs]
            else:
                pairs = zip(self._converters, outputs, strict=True)
                found = [convert(tensor) for convert, tensor in pairs]
            for place, source in self._aliases:
                if in_place and source in self._written:
                    found[place] = given[source]
                else:  # The next run may write to it.
                    found[place] = found[place].clone() if gives_torch else found[place].copy()
            return found

    def _call_padded(self, values: list[Any], shapes: Shapes, in_place: bool) -> list[np.ndarray]:
        given, pads = tuple(map(tuple, shapes)), not self.info.why_not_padded
        pads = pads and not (in_place and self._written)
        number = self.info.buckets.find(given, pads=pads)
        if number is None:
            raise SessionError(self._wrong_shapes(shapes))
        bucket = self.info.buckets.buckets[number]
        entry = self._entries[bucket.inputs]
        arrays = padded([np.asarray(value) for value in values], bucket.inputs)
        loads = zip(entry.slots, arrays, strict=True)
        output = entry.function(*[slot.load(array, keeps=False) for slot, array in loads])
        pairs = zip(self._converters, flat(output), strict=True)
        outputs = [convert(tensor) for convert, tensor in pairs]
        return cut(outputs, self._cuts, given)

    def _wrong_names(self, given: Iterable[str]) -> SessionError:
        return SessionError(
            f"the inputs given are {', '.join(map(str, given)) or 'none'}: expected "
            f"{', '.join(self._input_names) or 'none'}"
        )

    def _wrong_type(self, place: int, dtype: str) -> SessionError:
        spec = self.info.inputs[place]
        return SessionError(
            f"input {spec.name!r} has the type {dtype}: expected {spec.dtype}, as in "
            f"array.astype({spec.dtype!r})"
        )

    def _wrong_shapes(self, shapes: Shapes) -> str:
        tuned = "; or ".join(self._shown(each.inputs) for each in self.info.buckets.buckets)
        found = f"the inputs have the shapes {self._shown(shapes)}: the model was tuned for {tuned}"
        if len(self.info.functions) == 1:
            return found
        return f"{found}; {self.info.why_not_padded or 'none of these holds them'}"

    def _shown(self, shapes: Shapes) -> str:
        pairs = zip(self._input_names, shapes, strict=True)
        return ", ".join(f"{name} {tuple(shape)}" for name, shape in pairs)


class _Entry(NamedTuple):
    """A function of the library, and a slot for each of its inputs."""

    function: Any
    slots: list[Slot]


def _checked_threads(count: Any) -> int:
    available = os.cpu_count() or 1
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= available:
        raise SessionError(f"threads={count!r}: expected an int from 1 to {available}")
    return count

# SPDX-License-Identifier: Apache-2.0
"""TVM's importer of exported programs, checked against PyTorch's shapes and types at every node."""

from collections.abc import Callable
from typing import Any

from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from ...session.errors import ModelError, first_line
from .constant_folding import constant
from .converters import CONVERTERS
from .loading import line_of

Converter = Callable[[Any], Any]


class CheckedImporter(ExportedProgramImporter):  # type: ignore[misc]
    """TVM's importer with additional operators and checks.

    The result of a converter is compared with the metadata that PyTorch recorded for the node at
    export. A different type is converted; a different shape is an error. ``constants``: the result
    of ``fold_constants``.
    """

    def __init__(self, torch: Any, constants: list[Any]) -> None:
        self._torch = torch
        self._constants = constants
        super().__init__()

    def create_convert_map(self) -> dict[str, Converter]:
        """Return TVM's converters and this package's, by overload name."""
        converters = dict(super().create_convert_map())
        converters |= {name: self._ours(converter) for name, converter in CONVERTERS.items()}
        converters[constant.__name__] = self._held
        return {name: self._checked(converter) for name, converter in converters.items()}

    def refuse_unknown(self, program: Any) -> None:
        """Raise ``ModelError`` if a program has operators without a converter.

        The message names the operators and the model's source line of the first one.
        """
        nodes = [node for node in program.graph.nodes if node.op == "call_function"]
        unknown = [node for node in nodes if node.target.__name__ not in self.convert_map]
        if unknown:
            names = ", ".join(dict.fromkeys(node.target.__name__ for node in unknown))
            raise ModelError(
                f"the model uses the operator {names} of PyTorch{line_of(unknown[0])}, which is "
                "not supported: replace it, or export the part of the model without it"
            )

    def _ours(self, converter: Callable[[Any, Any], Any]) -> Converter:
        return lambda node: converter(node, self)

    def _held(self, node: Any) -> Any:
        return self._convert_torch_tensor_to_relax(self._constants[node.args[0]])

    def _checked(self, converter: Converter) -> Converter:
        def convert(node: Any) -> Any:
            try:
                result = converter(node)
            except ModelError:
                raise
            # TVM raises AssertionError, NotImplementedError and others for unsupported cases.
            except Exception as error:
                raise ModelError(
                    f"TVM cannot import {_called(node)}{line_of(node)}: {first_line(error)}"
                ) from error
            return self._as_noted(node, result)

        return convert

    def _as_noted(self, node: Any, result: Any) -> Any:
        noted = node.meta.get("val")
        kind = getattr(result, "ty", None)
        if not isinstance(noted, self._torch.Tensor) or not isinstance(kind, relax.TensorType):
            return result
        if isinstance(kind.shape, relax.ShapeExpr):
            extents = [getattr(extent, "value", None) for extent in kind.shape]
            expected = list(noted.shape)
            if len(extents) != len(expected) or any(
                isinstance(right, int) and found is not None and found != right
                for found, right in zip(extents, expected, strict=True)
            ):
                raise ModelError(
                    f"TVM imports {_called(node)}{line_of(node)} with the shape "
                    f"{tuple(extents)}, where PyTorch has {tuple(expected)}: please report it"
                )
        dtype = str(noted.dtype).removeprefix("torch.")
        if str(kind.dtype) != dtype and node.op == "call_function":
            return self.block_builder.emit(relax.op.astype(result, dtype))
        return result


def _called(node: Any) -> str:
    return f"{node.target.__name__} (node {node.name})"

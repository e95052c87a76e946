# SPDX-License-Identifier: Apache-2.0
"""PyTorch itself, and its files."""

from typing import TYPE_CHECKING, Any

from ....session.errors import ModelError

if TYPE_CHECKING:
    import torch


def load_exported_program(path: str) -> "torch.export.ExportedProgram":
    """Read a file of ``torch.export.save``.

    Raises ``ModelError`` if PyTorch is missing, or the file holds no exported program.
    """
    torch = import_pytorch()
    try:
        return torch.export.load(path)
    except Exception as error:
        raise ModelError(
            f"model {path!r} is no file of torch.export.save: {first_line(error)}"
        ) from error


def import_pytorch() -> Any:
    """The package ``torch``. Raises ``ModelError`` if it is missing."""
    try:
        import torch
    except ImportError as error:
        raise ModelError("a PyTorch model needs the package torch: pip install torch") from error
    return torch


def first_line(error: Exception) -> str:
    """The message of an exception, in one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].strip()


def line_of(node: Any) -> str:
    """The place in a model's code that a node comes from, for a sentence."""
    lines = (node.meta.get("stack_trace") or "").strip().splitlines()
    return f" ({lines[-1].strip()})" if lines else ""


def unlifted(program: Any) -> Any:
    """The module of an exported program, without the checks of its inputs' extents."""
    try:
        return program.module(check_guards=False)
    except TypeError:
        # Before PyTorch 2.9 there was nothing to leave out.
        return program.module()

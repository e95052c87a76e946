# SPDX-License-Identifier: Apache-2.0
"""Digest of the code that determines a measurement."""

import ast
import hashlib
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]

LEARNING = ("cost_model", "design_space", "bench/design_space.py", "bench/training.py")
"""Sources that determine the training of a cost model, relative to the package."""

DRAFTING = (
    "cost_model",
    "design_space",
    "search_strategy/published/decisions.py",
    "bench/design_space.py",
    "bench/fit_draft.py",
)
"""Sources that determine the fitting of a draft."""

REPLAYING = (
    *LEARNING,
    "search_strategy",
    "bench/table.py",
    "bench/definition.py",
    "bench/layers.py",
    "bench/compare/replay.py",
    "bench/compare/transfer.py",
)
"""Sources that determine a replayed run."""

TUNING = (
    "compat",
    "cost_model",
    "measure",
    "design_space",
    "frontends",
    "model",
    "search_strategy",
    "session",
    "tuning",
)
"""Sources that determine a live run."""


@cache
def source_digest(sources: Sequence[str], package: Path = PACKAGE) -> str:
    """SHA-256 of the code and the models in files and folders of the package, in hexadecimal.

    Code is hashed as a syntax tree without docstrings: comments, formatting and documentation do
    not change the digest. Raises ``FileNotFoundError`` for a path that does not exist.
    """
    digest = hashlib.sha256()
    for source in sources:
        path = package / source
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist: expected a file or folder of code")
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.suffix in (".py", ".model", ".draft"):
                content = _code(file) if file.suffix == ".py" else file.read_bytes()
                digest.update(f"{os.path.relpath(file, package)}\n".encode() + content)
    return digest.hexdigest()


def _code(file: Path) -> bytes:
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
    return ast.dump(tree).encode()


def _is_text(node: ast.AST) -> bool:
    """True for a docstring, or the documentation of a constant or an attribute."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )

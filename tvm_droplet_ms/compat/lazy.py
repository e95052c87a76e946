# SPDX-License-Identifier: Apache-2.0
"""Lazy names of a package, so that importing it imports no TVM. Imports no TVM."""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_exports(package: str, file: str) -> tuple[Callable[[str], Any], list[str]]:
    """Make the ``__getattr__`` (PEP 562) and the ``__all__`` of a package.

    Its ``__init__.py`` lists each public name once, in a block ``if TYPE_CHECKING``, as a redundant
    alias, which marks a re-export (PEP 484): ``from .builder import WarmBuilder as WarmBuilder``.
    ``package``, ``file``: the package's ``__name__`` and ``__file__``. A name is imported when
    first used. ``__getattr__`` raises ``AttributeError`` for any other name.
    """
    modules = {
        alias.name: "." * statement.level + (statement.module or "")
        for statement in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
        if alias.asname == alias.name
    }

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name], package), name)

    return get, sorted(modules)

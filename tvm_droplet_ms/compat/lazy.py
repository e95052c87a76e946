# SPDX-License-Identifier: Apache-2.0
"""Lazy names of a package, so that importing it imports no TVM. Imports no TVM."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the ``__getattr__`` of a package (PEP 562) that imports names when first used.

    ``package``: the name of the package. ``modules``: the defining module of each public name,
    relative to the package: ``".builder"``. The returned function raises ``AttributeError`` for any
    other name.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name], package), name)

    return get

# SPDX-License-Identifier: Apache-2.0
"""Temporary replacement of attributes of other modules."""

import threading
from collections.abc import Callable
from typing import Any

Attribute = tuple[Any, str, Any]
"""The owner of an attribute, the attribute's name and a value for it."""

lock = threading.RLock()
"""Held while attributes are replaced or restored."""


class Patch:
    """A set of attributes that are replaced while anyone holds the patch.

    Holders may nest, and may be in several threads. The first holder replaces the attributes. The
    last holder to leave restores the original objects.
    """

    def __init__(self, replacements: Callable[[], list[Attribute]]) -> None:
        self._replacements = replacements
        self._originals: list[Attribute] = []
        self._holders = 0

    def __enter__(self) -> None:
        with lock:
            if self._holders == 0:
                replacements = self._replacements()
                # From vars(), because getattr() would unwrap a static method.
                self._originals = [
                    (owner, name, vars(owner)[name]) for owner, name, _ in replacements
                ]
                for owner, name, value in replacements:
                    setattr(owner, name, value)
            self._holders += 1

    def __exit__(self, *_: object) -> None:
        with lock:
            self._holders -= 1
            if self._holders == 0:
                for owner, name, value in self._originals:
                    setattr(owner, name, value)

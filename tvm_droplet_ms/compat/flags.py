# SPDX-License-Identifier: Apache-2.0
"""Flags that a user gives."""

import numpy as np


def check_flag(name: str, value: object) -> bool:
    """The value of a flag. Raises ``ValueError`` if it is not a bool: the text "no" is truthy."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name}={value!r}: expected True or False")
    return bool(value)

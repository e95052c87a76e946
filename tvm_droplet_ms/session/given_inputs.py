# SPDX-License-Identifier: Apache-2.0
"""Checks of a user's values: numbers, and the inputs of a model or a kernel."""

import math
from collections.abc import Mapping
from numbers import Integral, Real

import numpy as np


def is_integer(value: object, least: float = -math.inf) -> bool:
    """True for an integer of at least `least`; False for a bool."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def is_positive(value: object) -> bool:
    """True for a finite number above 0."""
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < math.inf


def given_values(
    given: Mapping[str, np.ndarray], wanted: Mapping[str, tuple[tuple[int, ...], "np.dtype"]]
) -> dict[str, np.ndarray]:
    """Check the given values, and convert them to the wanted types.

    ``given``: values by name. ``wanted``: the shape and the type of every input, by name. Returns
    the given values by name, without the other inputs. Raises ``ValueError`` if a name is not an
    input, or if a value has another shape, another kind of type, such as floating-point numbers for
    integers, or an integer out of range.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"inputs is {given!r}, expected arrays by the names {list(wanted)}")
    if unknown := sorted(str(name) for name in set(given) - set(wanted)):
        raise ValueError(f"inputs has {unknown}, expected names of {list(wanted)}")
    return {name: _value(name, value, *wanted[name]) for name, value in given.items()}


def _value(name: str, value: np.ndarray, shape: tuple[int, ...], dtype: "np.dtype") -> np.ndarray:
    try:
        value = np.asarray(value)
    except ValueError as error:  # Such as lists of different lengths.
        raise ValueError(f"inputs[{name!r}] is no array: {error}") from error
    if value.shape != tuple(shape):
        raise ValueError(f"inputs[{name!r}] has the shape {value.shape}, expected {tuple(shape)}")
    if not _fits(value.dtype, dtype):
        raise ValueError(f"inputs[{name!r}] has the type {value.dtype}, expected {dtype}")
    if dtype.kind in "iu" and value.size:
        limits = np.iinfo(dtype)
        low, high = int(value.min()), int(value.max())
        if low < limits.min or high > limits.max:
            raise ValueError(
                f"inputs[{name!r}] has numbers from {low} to {high}, which {dtype} does not hold"
            )
    return value.astype(dtype, order="C")


def _fits(given: "np.dtype", wanted: "np.dtype") -> bool:
    """True if values of a type may be converted: signs and sizes may differ, kinds may not."""
    rank = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2}  # V: a type that NumPy lacks, such as bfloat16.
    return given.names is None and rank.get(given.kind, 9) <= rank.get(wanted.kind, 2)

# SPDX-License-Identifier: Apache-2.0
"""The precisions that a model may be computed in."""

from typing import Literal, get_args

from tvm.target import Target

from ...design_space.dot_products.dot_units import half_unit
from ...session.errors import ModelError
from ..check.output_check import EXACT_TOLERANCE, HALF_TOLERANCE, WINOGRAD_TOLERANCE

Precision = Literal["float32", "bfloat16"]


def check_precision(precision: str, exact: bool, target: Target) -> None:
    """Raise ``ModelError`` for a precision that ``tune`` does not support.

    ``exact``: whether Winograd's algorithm is disallowed.
    """
    if precision not in get_args(Precision):
        known = ", ".join(map(repr, get_args(Precision)))
        raise ModelError(f"precision={precision!r}: expected one of {known}")
    if precision == "bfloat16" and not exact:
        raise ModelError(
            "exact=False and precision='bfloat16' exclude each other: Winograd's algorithm is for "
            "convolutions of float32; leave one out (--allow-winograd, --allow-bfloat16)"
        )
    if precision == "bfloat16" and half_unit(target) is None:
        raise ModelError(
            f"precision='bfloat16': the target {target} has no AVX512_BF16, "
            "by which it is faster: leave it out (--allow-bfloat16)"
        )


def default_tolerance(precision: str, exact: bool) -> float:
    """Return the default tolerance of a model."""
    if precision == "bfloat16":
        return HALF_TOLERANCE
    return EXACT_TOLERANCE if exact else WINOGRAD_TOLERANCE

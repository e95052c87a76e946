# SPDX-License-Identifier: Apache-2.0
"""The error of ``tune``."""

from collections.abc import Sequence


class ModelError(ValueError):
    """The argument cannot be tuned. The message names it and says what to pass."""


class TooLateError(ModelError):
    """The time was too short for an executable."""


class RoundingError(ModelError):
    """The outputs of a model of bfloat16 deviate by more than the tolerance.

    Parameters
    ----------
    deviation : float
        By how much.
    message : str
        As for ``ModelError``.
    """

    def __init__(self, deviation: float, message: str) -> None:
        super().__init__(message)
        self.deviation = deviation


class LateKernelsError(TooLateError):
    """Kernels whose code the compiler refuses, or takes longer for than there is time.

    Parameters
    ----------
    names : Sequence[str]
        Their functions' names.
    message : str
        As for ``TooLateError``.
    """

    def __init__(self, names: Sequence[str], message: str) -> None:
        super().__init__(message)
        self.names = tuple(names)

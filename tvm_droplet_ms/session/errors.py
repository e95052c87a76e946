# SPDX-License-Identifier: Apache-2.0
"""The errors of ``tune``."""

from collections.abc import Sequence


class ModelError(ValueError):
    """The argument cannot be tuned. The message names it and says what to pass."""


class TooLateError(ModelError):
    """The time was too short for an executable."""


class RoundingError(ModelError):
    """The outputs of a bfloat16 model deviate by more than the tolerance.

    Parameters
    ----------
    deviation : float
        The deviation of the outputs.
    message : str
        As for ``ModelError``.
    """

    def __init__(self, deviation: float, message: str) -> None:
        super().__init__(message)
        self.deviation = deviation


class LateKernelsError(TooLateError):
    """The compiler refuses some kernels, or cannot compile them in time.

    Parameters
    ----------
    names : Sequence[str]
        The names of the kernels' functions.
    message : str
        As for ``TooLateError``.
    """

    def __init__(self, names: Sequence[str], message: str) -> None:
        super().__init__(message)
        self.names = tuple(names)

# SPDX-License-Identifier: Apache-2.0
"""The errors of ``tune``, and the lines of an error's message."""

import re
from collections.abc import Sequence

_OPERATOR = re.compile(r'ir\.Op\(.*?name="([\w.]+)".*?support_level=\d+\)')
"""Matches TVM's text for an operator in messages, which is half a kilobyte long."""

_OWN_CLASS = re.compile(r"^tvm_droplet_ms\.[\w.]+: ")
"""Matches the class that errors of this package's workers start with."""


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


def message_lines(error: object) -> list[str]:
    """The lines of an error or its message; the name of its class if the message is empty."""
    return str(error).strip().splitlines() or [type(error).__name__]


def first_line(error: object) -> str:
    """The first line of an error's message, or its class if the message is empty."""
    return message_lines(error)[0].strip()[:300]


def last_line(error: object) -> str:
    """The last line of an error's message: TVM puts tracebacks and whole schedules before it."""
    line = _OWN_CLASS.sub("", message_lines(error)[-1].strip())
    return _OPERATOR.sub(r"\1", line)[:300]

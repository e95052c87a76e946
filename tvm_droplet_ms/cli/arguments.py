# SPDX-License-Identifier: Apache-2.0
"""Argument types of the commands, and their error and interrupt messages. Imports no TVM."""

import argparse
import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from ..session.stop import handling

MOST = 2**31 - 1
"""The largest integer that TVM accepts as a count or a seed."""


def whole(least: int, expected: str, most: int = MOST) -> Callable[[str], int]:
    """Make a parser of integers from `least` to `most`. ``expected``: end of the error message."""

    def parse(text: str) -> int:
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MOST))
        if not is_number or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} {expected}")
        return int(text)

    return parse


positive = whole(1, f"is not a positive integer up to {MOST}")
port = whole(1, "is no port: expected an integer from 1 to 65535", 65535)
seed = whole(0, f"is no seed: expected an integer to {MOST}")
trials = whole(0, f"is not a number of trials: expected an integer from 0 to {MOST}")


def minutes(text: str) -> float:
    """Parse a positive number of minutes. For ``type=`` of an argument."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of minutes")
    return number


def stop_gain(text: str) -> float | str | None:
    """Parse "auto", "none" or a share from 0 to 1. For ``type=`` of an argument."""
    if text in ("auto", "none"):
        return text if text == "auto" else None
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not auto, none or a share from 0 to 1, such as 0.005"
        )
    return share


def _named(
    parse: Callable[[str], Any], separator: str, expected: str
) -> Callable[[str], tuple[str, Any]]:
    """Make a parser of a name and a value, "name=value", or a list of values with a separator.

    ``expected``: end of the error message.
    """

    def read(text: str) -> tuple[str, Any]:
        name, equals, written = text.rpartition("=")
        try:
            values = [parse(each) for each in written.split(separator)]
        except ValueError:
            values = []
        if not name or not equals or not values:
            raise argparse.ArgumentTypeError(f"{text!r} {expected}")
        return name, values[0] if len(values) == 1 else values

    return read


def _extent(text: str) -> int:
    if int(text) < 0:
        raise ValueError
    return int(text)


def _extents(text: str) -> tuple[int, ...]:
    return tuple(map(_extent, text.split(","))) if text else ()


def _number(text: str) -> float | int:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _word(text: str) -> str:
    if not text:
        raise ValueError
    return text


_SEVERAL = "or several with | between them"

shape = _named(
    _extents, "|", f"is no shape: expected a name and extents, such as x=1,3,224,224, {_SEVERAL}"
)
dim = _named(
    _extent,
    "|",
    f"is no extent: expected a name and a whole number, such as width=320, {_SEVERAL}",
)
constant = _named(
    _number, ",", "is no value of an input: expected a name and numbers, such as sr=16000"
)
in_place = _named(
    _word,
    "=",
    "is no pair of an input and an output: expected two names, such as past_key_values.*=present.*",
)


def shares(text: str) -> list[float]:
    """Parse the shares of several shapes, "3,1". For ``type=`` of an argument."""
    try:
        parsed = [float(each) for each in text.split(",")]
    except ValueError:
        parsed = []
    if not parsed or not all(0 < share < float("inf") for share in parsed):
        raise argparse.ArgumentTypeError(
            f"{text!r} are no shares: expected a positive number for each shape, such as 3,1"
        )
    return parsed


def command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], about: str
) -> argparse.ArgumentParser:
    """Add a command to the parser's subcommands. Its description is the docstring of `run`.

    ``run``: takes the parsed options, and returns the exit status. ``about``: what the list of
    commands says.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=about, description=" ".join((run.__doc__ or "").split())
    )
    parser.set_defaults(run=run)
    return parser


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the workload functions of the user's own spaces."""
    parser.add_argument(
        "--trust",
        nargs="+",
        default=[],
        metavar="MODULE:FUNCTION",
        help="workload functions that space files may name; they are imported and run",
    )


def fail(command: str, reason: object) -> int:
    """Print the reason for a command's failure to standard error, and return its exit status."""
    print(f"droplet-ms {command}: error: {reason}", file=sys.stderr)
    return 1


@contextmanager
def ending_at_once(advice: str) -> Iterator[None]:
    """Make Ctrl-C and SIGTERM end the process at once, with a message and status 130.

    While ``tune`` and ``tune_kernel`` tune, they handle the first signal and stop in order. This
    context handles the other signals: before and after the tuning, and the second signal. It raises
    no exception, because that would have to pass through TVM's C++. The workers end by themselves.
    Ignored signals stay ignored. ``advice``: the command that continues the run.
    """

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        # print() is not reentrant: the signal may arrive inside another print().
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text)
        os._exit(130)

    text = f"\ninterrupted; what is measured is kept. To go on: {advice}\n".encode()
    with handling(end):
        yield


def concerns(error: OSError, path: str) -> bool:
    """True if an error is about a path, a file below it, a partial file of it, or disk space."""
    if error.errno in (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG):
        return True
    if error.filename is None:
        return False
    named, wanted = os.path.abspath(os.fsdecode(error.filename)), os.path.abspath(path)
    return named == wanted or named.startswith((wanted + os.sep, wanted + "."))

# SPDX-License-Identifier: Apache-2.0
"""Argument types of the commands, and their error and interrupt messages. Imports no TVM."""

import argparse
import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, TypeVar

from ..session.stop import handling

T = TypeVar("T")

MOST = 2**31 - 1
"""The largest integer that TVM accepts as a count or a seed."""


def _told(parse: Callable[[str], T], expected: str) -> Callable[[str], T]:
    """Make the ``type=`` of an argument. ``expected``: end of the message for a ``ValueError``."""

    def read(text: str) -> T:
        try:
            return parse(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} {expected}") from None

    return read


def _within(value: T, is_right: bool) -> T:
    if not is_right:
        raise ValueError
    return value


def whole(least: int, expected: str, most: int = MOST) -> Callable[[str], int]:
    """Make a parser of integers from `least` to `most`. ``expected``: end of the error message."""

    def parse(text: str) -> int:
        _within(text, text.isascii() and text.isdigit() and len(text) <= len(str(MOST)))
        return _within(int(text), least <= int(text) <= most)

    return _told(parse, expected)


def _positive(text: str) -> float:
    return _within(float(text), 0.0 < float(text) < float("inf"))


def _share(text: str) -> float | str | None:
    if text in ("auto", "none"):
        return text if text == "auto" else None
    return _within(float(text), 0.0 <= float(text) <= 1.0)


def _extent(text: str) -> int:
    return _within(int(text), int(text) >= 0)


def _extents(text: str) -> tuple[int, ...]:
    return tuple(map(_extent, text.split(","))) if text else ()


def _number(text: str) -> float | int:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _named(parse: Callable[[str], Any], separator: str) -> Callable[[str], tuple[str, Any]]:
    """Make a parser of "name=value", or of a name and a list of values with a separator."""

    def read(text: str) -> tuple[str, Any]:
        name, equals, written = text.rpartition("=")
        values = [parse(each) for each in written.split(separator)]
        return _within(name, bool(name and equals)), values[0] if len(values) == 1 else values

    return read


_SEVERAL = "or several with | between them"

positive = whole(1, f"is not a positive integer up to {MOST}")
port = whole(1, "is no port: expected an integer from 1 to 65535", 65535)
seed = whole(0, f"is no seed: expected an integer to {MOST}")
trials = whole(0, f"is not a number of trials: expected an integer from 0 to {MOST}")
minutes = _told(_positive, "is not a positive number of minutes")
stop_gain = _told(_share, "is not auto, none or a share from 0 to 1, such as 0.005")
shape = _told(
    _named(_extents, "|"),
    f"is no shape: expected a name and extents, such as x=1,3,224,224, {_SEVERAL}",
)
dim = _told(
    _named(lambda extent: _within(int(extent), extent.isdecimal()), "|"),
    f"is no extent: expected a name and a whole number, such as width=320, {_SEVERAL}",
)
constant = _told(
    _named(_number, ","), "is no value of an input: expected a name and numbers, such as sr=16000"
)
in_place = _told(
    _named(lambda output: _within(output, bool(output)), "="),
    "is no pair of an input and an output: expected two names, such as past_key_values.*=present.*",
)
shares = _told(
    lambda text: [_positive(each) for each in text.split(",")],
    "are no shares: expected a positive number for each shape, such as 3,1",
)


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

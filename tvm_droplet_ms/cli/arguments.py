# SPDX-License-Identifier: Apache-2.0
"""Argument types shared by the commands."""

import argparse

MOST = 2**31 - 1
"""The largest integer that TVM takes for a count or a seed."""


def _integer(text: str, least: int) -> int | None:
    """An integer from `least` to ``MOST``; None for anything else."""
    if not text.isascii() or not text.isdigit() or len(text) > len(str(MOST)):
        return None
    return int(text) if least <= int(text) <= MOST else None


def positive(text: str) -> int:
    """Parse a positive integer. For ``type=`` of an argument."""
    number = _integer(text, 1)
    if number is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer up to {MOST}")
    return number


def seed(text: str) -> int:
    """Parse a seed. For ``type=`` of an argument."""
    number = _integer(text, 0)
    if number is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: expected an integer to {MOST}")
    return number


def minutes(text: str) -> float:
    """Parse a positive number of minutes. For ``type=`` of an argument."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of minutes")
    return number


def trials(text: str) -> int:
    """Parse a number of trials. For ``type=`` of an argument."""
    number = _integer(text, 0)
    if number is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of trials: expected an integer from 0 to {MOST}"
        )
    return number

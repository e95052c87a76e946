# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
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

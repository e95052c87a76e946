# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms resume``."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..session.records import count_measured
from . import tune
from .arguments import command, fail
from .manifest import FILE, ManifestError, read_manifest
from .options import OPTIONS

_OWN = ("minutes", "trials", "json", "quiet")
"""The options of ``droplet-ms tune`` that may be changed."""

LEAST_MINUTES = 0.01
"""The minimum budget of a resumed run in minutes. It still checks a kernel's best schedules."""


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to the function to call."""
    resume = command(commands, "resume", _run, "go on with a run of droplet-ms tune")
    resume.add_argument("work_dir", metavar="WORK_DIR", help="the directory of a run")
    for option in OPTIONS:
        if option.name in _OWN:
            option.add_to(resume, default=None)


def _run(options: argparse.Namespace) -> int:
    """Go on with the last droplet-ms tune of a directory, with its options, and what is left of
    its minutes and trials. No schedule is measured again. Minutes and trials that are given here
    count for all runs together."""
    try:
        manifest = read_manifest(options.work_dir)
        kept = _kept(manifest.options, Path(options.work_dir) / FILE)
        done = count_measured(options.work_dir, manifest.known)
    except (ManifestError, OSError) as error:
        return fail("resume", error)
    kept.command, kept.work_dir = options.command, options.work_dir
    for name in _OWN:
        if getattr(options, name) is not None:
            setattr(kept, name, getattr(options, name))
    budget = kept.minutes
    if manifest.spent_secs >= 60.0 * budget:
        print(
            f"droplet-ms resume: {manifest.spent_secs / 60.0:.2g} minutes are spent of the "
            f"{budget:g} of all runs together: more need a larger --minutes",
            file=sys.stderr,
        )
    spent = tune.Spent(manifest.spent_secs, done, manifest.known)
    return tune.run(kept, max(LEAST_MINUTES, budget - manifest.spent_secs / 60.0), spent)


def _kept(options: Mapping[str, Any], path: Path) -> argparse.Namespace:
    """The stored options of a run, with defaults for options that its version lacked.

    Raises ``ManifestError`` if an option has an invalid value, such as in an edited file.
    """
    if not isinstance(options.get("model"), str):
        raise ManifestError(f"{path} is damaged: it names no model; run droplet-ms tune again")
    defaults = {option.name: option.default for option in OPTIONS}
    kept = argparse.Namespace(**{**defaults, **options})
    for option in OPTIONS:
        value, parse = getattr(kept, option.name), option.settings.get("type")
        if parse is None or value == option.default or isinstance(value, list):
            continue
        try:
            parse(str(value).lower())
        except (argparse.ArgumentTypeError, ValueError) as error:
            raise ManifestError(
                f"{path} is damaged: {option.name} is {value!r}; run droplet-ms tune again"
            ) from error
    return kept

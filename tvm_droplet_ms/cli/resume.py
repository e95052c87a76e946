# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms resume``."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..session.records import count_measured
from . import tune
from .arguments import fail, minutes, trials
from .manifest import FILE, ManifestError, read_manifest

LEAST_MINUTES = 0.01
"""The minimum budget of a resumed run in minutes. It still checks a kernel's best schedules."""


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to the function to call."""
    resume = commands.add_parser(
        "resume",
        help="go on with a run of droplet-ms tune",
        description="Go on with the last droplet-ms tune of a directory, with its options, and "
        "what is left of its minutes and trials. No schedule is measured again.",
    )
    resume.add_argument("work_dir", metavar="WORK_DIR", help="the directory of a run")
    resume.add_argument("--minutes", type=minutes, help="minutes of all runs together")
    resume.add_argument("--trials", type=trials, help="trials of all runs together")
    resume.add_argument("--json", action="store_true", default=None, help="print JSON")
    resume.add_argument("--quiet", action="store_true", default=None, help="print no progress")
    resume.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    try:
        manifest = read_manifest(options.work_dir)
        kept = _kept(manifest.options, Path(options.work_dir) / FILE)
        done = count_measured(options.work_dir, manifest.known)
    except (ManifestError, OSError) as error:
        return fail("resume", error)
    kept.command, kept.work_dir = options.command, options.work_dir
    for name in ("minutes", "trials", "json", "quiet"):
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
    parser = argparse.ArgumentParser()
    tune.add_command(parser.add_subparsers())
    kept = argparse.Namespace(**{**vars(parser.parse_args(["tune", "dense"])), **options})
    for name, kind, least in (("minutes", float, 0.0), ("threads", int, 1), ("seed", int, None)):
        value = getattr(kept, name)
        is_right = isinstance(value, int if kind is int else int | float)
        if not is_right or (least is not None and not value >= least):
            raise ManifestError(
                f"{path} is damaged: {name} is {value!r}; run droplet-ms tune again"
            )
    return kept

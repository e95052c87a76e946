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
"""The commands ``droplet-ms space`` and ``droplet-ms compare``."""

import argparse
import sys
from pathlib import Path
from typing import Any

from .data_commands import add_data_commands
from .library import HELD_OUT, find_space, shipped_spaces, shipped_training_files

PASSES = 5

SAMPLE_POINTS = 128


def add_commands(commands: Any) -> None:
    """Add the commands to the parser's subcommands; each sets ``run`` to what runs it."""
    space = commands.add_parser(
        "space",
        help="make a measured space, or look at one",
        description="Measured spaces: every schedule of a small design space, timed.",
    )
    actions = space.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_build(actions)
    _add_sample(actions)
    _add_show(actions)
    add_data_commands(actions)
    _add_compare(commands)


def _add_build(actions: Any) -> None:
    build = actions.add_parser(
        "build",
        help="enumerate the schedules of a workload, build and time them all",
        description="Enumerate the schedules of a workload's design space, build them all, check "
        "what they compute, and time each in several passes over the whole space. The same command "
        "resumes an interrupted build. Let nothing else run meanwhile.",
    )
    build.add_argument(
        "workload", help="a workload of the package, or package.module:function; `list` lists them"
    )
    build.add_argument("--out", type=Path, help="the file to write (default: WORKLOAD.json.gz)")
    build.add_argument(
        "--passes",
        type=_positive,
        default=PASSES,
        help="how often every module is timed (default: %(default)s)",
    )
    build.add_argument(
        "--work-dir",
        type=Path,
        help="new or empty directory for builds and measurements, or that of an earlier, "
        "interrupted build; what this command put into it is deleted once the file is written "
        "(default: the file's name with .work)",
    )
    build.add_argument(
        "--keep", action="store_true", help="keep the builds, to be able to add passes later"
    )
    build.set_defaults(run=_build)


def _add_sample(actions: Any) -> None:
    sample = actions.add_parser(
        "sample",
        help="time some schedules of workloads, to pretrain a cost model with",
        description="Build and time some schedules of each workload's design space, half of them "
        "at random and half near the best, and write a file of each that `droplet-ms pretrain` "
        "learns from. The same command resumes an interrupted one. Let nothing else run meanwhile.",
    )
    sample.add_argument(
        "workloads",
        nargs="+",
        help="workloads of the package, or package.module:function; `list` lists them",
    )
    sample.add_argument(
        "--points",
        type=_positive,
        default=SAMPLE_POINTS,
        help="how many schedules of each (default: %(default)s)",
    )
    sample.add_argument(
        "--passes",
        type=_positive,
        default=1,
        help="how often every schedule is timed (default: %(default)s)",
    )
    sample.add_argument(
        "--out", type=Path, default=Path("."), help="the directory of the files (default: this one)"
    )
    sample.set_defaults(run=_sample)


def _add_show(actions: Any) -> None:
    show = actions.add_parser(
        "show",
        help="print what a space looks like",
        description="Print the size, the optimum, the failures and the local minima of spaces.",
    )
    show.add_argument(
        "spaces", nargs="*", help="files, or names of the package's spaces (default: all of those)"
    )
    show.set_defaults(run=_show)


def _add_compare(commands: Any) -> None:
    compare = commands.add_parser(
        "compare",
        help="compare search strategies on measured spaces",
        description="Run search strategies on measured spaces, without compiling anything, and "
        "print what each reached. The same command resumes an interrupted comparison.",
    )
    compare.add_argument(
        "--spaces",
        nargs="+",
        default=["all"],
        help="files, or names of the package's spaces, or `held-out` for those on which nothing "
        "was chosen, or `all` for the others (default: all)",
    )
    compare.add_argument(
        "--strategies", nargs="+", default=[], metavar="NAME", help="which (default: all)"
    )
    compare.add_argument("--trials", type=_positive, default=128, help="default: %(default)s")
    compare.add_argument("--seeds", type=_positive, default=20, help="default: %(default)s")
    compare.add_argument(
        "--batch",
        type=_positive,
        default=64,
        help="the most trials of a batch (default: %(default)s, TVM's own)",
    )
    compare.add_argument("--out", type=Path, required=True, help="the directory of the results")
    compare.add_argument(
        "--noisy", action="store_true", help="draw from the recorded times, not their median"
    )
    compare.add_argument(
        "--trust",
        nargs="+",
        default=[],
        metavar="MODULE:FUNCTION",
        help="functions that files of spaces may name as their workload, which runs them",
    )
    compare.add_argument("--workers", type=_positive, help="processes (default: one for each CPU)")
    compare.set_defaults(run=_compare)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive integer")
    return int(text)


def _build(options: argparse.Namespace) -> int:
    from ..host import host_target
    from ..measure import fast_start
    from .building import build_space, console_progress
    from .definitions import DEFINITIONS, UnknownDefinitionError, find_definition
    from .work_directory import CollectionError, remove

    if options.workload == "list":
        for name, make in DEFINITIONS.items():
            if not make().is_whole:
                print(f"{name}: {make().description}")
        return 0
    fast_start()
    try:
        definition = find_definition(options.workload)
        if definition.is_whole:
            print(
                f"droplet-ms space: error: {definition.name} is MetaSchedule's whole space, which "
                "is too large to enumerate; measure a sample of it with: droplet-ms space sample "
                f"{options.workload}",
                file=sys.stderr,
            )
            return 1
        out: Path = options.out or Path(f"{definition.name}.json.gz")
        if not out.parent.is_dir():
            print(f"droplet-ms space: error: {out.parent} is no directory", file=sys.stderr)
            return 1
        directory = options.work_dir or out.with_name(out.name + ".work")
        progress = console_progress(definition.name)
        build_space(
            definition,
            options.workload,
            host_target(),
            directory,
            out,
            passes=options.passes,
            progress=progress,
        )
    except (UnknownDefinitionError, CollectionError) as error:
        print(f"droplet-ms space: error: {error}", file=sys.stderr)
        return 1
    if not options.keep:
        remove(directory)
    print(f"wrote {out}")
    return 0


def _sample(options: argparse.Namespace) -> int:
    from ..host import host_target
    from ..measure import fast_start
    from .building import console_progress
    from .definitions import UnknownDefinitionError, find_definition, sampled_definitions
    from .sampling.build import build_sample
    from .work_directory import CollectionError, remove

    if options.workloads == ["list"]:
        for name, make in sampled_definitions().items():
            print(f"{name}: {make().description}")
        return 0
    fast_start()
    try:
        definitions = {name: find_definition(name) for name in options.workloads}
    except UnknownDefinitionError as error:
        print(f"droplet-ms space: error: {error}", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    status = 0
    for name, definition in definitions.items():
        out = options.out / f"{definition.name}.json.gz"
        if out.exists():
            print(f"{out} is there already")
            continue
        directory = out.with_name(out.name + ".work")
        try:
            build_sample(
                definition,
                name,
                host_target(),
                directory,
                out,
                points=options.points,
                passes=options.passes,
                progress=console_progress(definition.name),
            )
        except CollectionError as error:
            print(f"droplet-ms space: error: {name}: {error}", file=sys.stderr)
            status = 1
            continue
        remove(directory)
        print(f"wrote {out}")
    return status


def _show(options: argparse.Namespace) -> int:
    from .landscape import landscape
    from .show import format_landscapes
    from .space import Space, SpaceError

    names = options.spaces or list(shipped_spaces())
    if not names:
        print("droplet-ms space: error: there is no space to show", file=sys.stderr)
        return 1
    try:
        spaces = [Space.load(find_space(name)) for name in names]
    except SpaceError as error:
        print(f"droplet-ms space: error: {error}", file=sys.stderr)
        return 1
    print(format_landscapes([(space, landscape(space)) for space in spaces]))
    return 0


def _compare(options: argparse.Namespace) -> int:
    from .compare.command import run_compare
    from .compare.results import CompareError
    from .definitions import trust
    from .space import SpaceError

    trust(*options.trust)
    try:
        return run_compare(
            [file for given in options.spaces for file in _space_files(given)],
            options.strategies,
            options.out,
            trials=options.trials,
            seeds=options.seeds,
            noisy=options.noisy,
            num_trials_per_iter=options.batch,
            workers=options.workers,
            samples=shipped_training_files(),
        )
    except (CompareError, SpaceError) as error:
        print(f"droplet-ms compare: error: {error}", file=sys.stderr)
        return 1


def _space_files(given: str) -> list[Path]:
    """Files that a name stands for."""
    if given not in ("all", "held-out"):
        return [find_space(given)]
    held_out = given == "held-out"
    return [file for name, file in shipped_spaces().items() if (name in HELD_OUT) == held_out]

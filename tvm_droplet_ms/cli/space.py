# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms space``."""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ..bench.work_directory import CollectionError, remove
from ..display.tables import align
from ..measure.turns import quartiles
from .arguments import add_trust, command, fail, positive

if TYPE_CHECKING:
    from tvm.target import Target

    from ..bench.definition import Definition
    from ..bench.space import Space

SAMPLE_POINTS = 128

PASSES = 5


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to the function to call."""
    space = commands.add_parser(
        "space",
        help="make a measured space, or look at one",
        description="Measured spaces: every schedule of a small design space, timed.",
    )
    actions = space.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_build(actions)
    _add_sample(actions)
    _add_show(actions)
    _add_features(actions)


def _add_build(actions: Any) -> None:
    build = command(
        actions, "build", _build, "enumerate the schedules of a workload, build and time them all"
    )
    build.add_argument(
        "workload", help="a workload of the package, or package.module:function; `list` lists them"
    )
    build.add_argument("--out", type=Path, help="output file (default: WORKLOAD.json.gz)")
    build.add_argument(
        "--passes",
        type=positive,
        default=PASSES,
        help="number of timings per module (default: %(default)s)",
    )
    build.add_argument(
        "--work-dir",
        type=Path,
        help="new or empty directory for builds and measurements, or that of an earlier, "
        "interrupted build; the command's files in it are deleted once the output is written "
        "(default: the output file's name with .work)",
    )
    build.add_argument(
        "--keep", action="store_true", help="keep the builds, to be able to add passes later"
    )


def _add_sample(actions: Any) -> None:
    sample = command(
        actions,
        "sample",
        _sample,
        "time some schedules of workloads as training data for a cost model",
    )
    sample.add_argument(
        "workloads",
        nargs="+",
        help="workloads of the package, or package.module:function; `list` lists them",
    )
    sample.add_argument(
        "--points",
        type=positive,
        default=SAMPLE_POINTS,
        help="number of schedules per workload (default: %(default)s)",
    )
    machine = sample.add_mutually_exclusive_group()
    machine.add_argument(
        "--target",
        help="cuda for this machine's device, or a target of TVM's such as nvidia/nvidia-h100, "
        "for whole spaces (default: this machine's CPU)",
    )
    machine.add_argument(
        "--mcpu",
        help="LLVM's name of the CPU to build for, which this machine must be able to run "
        "(default: this machine's own)",
    )
    sample.add_argument(
        "--passes",
        type=positive,
        default=1,
        help="number of timings per schedule (default: %(default)s)",
    )
    sample.add_argument(
        "--out", type=Path, default=Path("."), help="output directory (default: the current one)"
    )


def _add_show(actions: Any) -> None:
    show = command(actions, "show", _show, "print statistics of a space")
    show.add_argument(
        "spaces", nargs="*", help="files, or names of the package's spaces (default: all of those)"
    )


def _add_features(actions: Any) -> None:
    features = command(
        actions,
        "features",
        _features,
        "write the features and times of measured schedules as training data for a cost model",
    )
    features.add_argument(
        "spaces",
        nargs="+",
        metavar="NAME",
        help="files, names of the package's spaces and samples, or `shipped` for all of those",
    )
    features.add_argument("--out", type=Path, required=True, help="directory of the files")
    features.add_argument(
        "--model",
        choices=["trees", "treegru", "pacm", "pacm-stores"],
        default="trees",
        help="kind of model to train on the features (default: %(default)s)",
    )
    add_trust(features)


def _build(options: argparse.Namespace) -> int:
    """Enumerate the schedules of a workload's design space, build them all, check their outputs,
    and time each in several passes over the whole space. The same command resumes an interrupted
    build. Keep the machine idle meanwhile."""
    from ..bench.definition import DEFINITIONS, UnknownDefinitionError, find_definition
    from ..bench.making.building import build_space
    from ..host import host_target
    from ..measure import fast_start

    if options.workload == "list":
        return _list({name: make for name, make in DEFINITIONS.items() if not make().is_whole})
    fast_start()
    try:
        definition = find_definition(options.workload)
    except UnknownDefinitionError as error:
        return fail("space", error)
    if definition.is_whole:
        return fail(
            "space",
            f"{definition.name} is MetaSchedule's whole space, which is too large to "
            "enumerate; measure a sample of it with: droplet-ms space sample "
            f"{options.workload}",
        )
    out: Path = options.out or Path(f"{definition.name}.json.gz")
    if not out.parent.is_dir():
        return fail("space", f"{out.parent} is no directory")
    directory = options.work_dir or out.with_name(out.name + ".work")
    build = partial(build_space, definition, options.workload, host_target(), passes=options.passes)
    try:
        _write(definition.name, build, directory, out, keep=options.keep)
    except CollectionError as error:
        return fail("space", error)
    return 0


def _list(definitions: "Mapping[str, Callable[[], Definition]]") -> int:
    for name, make in definitions.items():
        print(f"{name}: {make().description}")
    return 0


def _write(
    name: str, make: Callable[..., object], directory: Path, out: Path, *, keep: bool = False
) -> None:
    """Make a space or a sample in a directory, which is removed unless `keep`, and its file."""
    from ..display.displays import console_steps

    with console_steps(name) as progress:
        make(directory=directory, out=out, progress=progress)
    if not keep:
        remove(directory)
    print(f"wrote {out}")


def _sample(options: argparse.Namespace) -> int:
    """Build and time some schedules of each workload's design space, half of them at random and
    half near the best, and write one file per workload for `droplet-ms space features`. The same
    command resumes an interrupted run. Keep the machine idle meanwhile."""
    from ..bench.definition import SAMPLED, UnknownDefinitionError, find_definition
    from ..bench.making.building import build_sample
    from ..measure import fast_start
    from ..session.errors import ModelError

    if options.workloads == ["list"]:
        return _list(SAMPLED)
    fast_start()
    try:
        definitions = {name: find_definition(name) for name in options.workloads}
        target = _target(options.target, options.mcpu)
        _refuse_cut_spaces(target, definitions)
    except (UnknownDefinitionError, ModelError) as error:
        return fail("space", error)
    status = 0
    for name, definition in definitions.items():
        out = options.out / f"{definition.name}.json.gz"
        if out.exists():
            print(f"{out} is there already")
            continue
        out.parent.mkdir(parents=True, exist_ok=True)
        sample = partial(
            build_sample, definition, name, target, points=options.points, passes=options.passes
        )
        try:
            _write(name, sample, out.with_name(out.name + ".work"), out)
        except CollectionError as error:
            status = fail("space", f"{name}: {error}")
    return status


def _target(given: str | None, mcpu: str | None) -> "Target":
    """The given target, or this machine's target, with another CPU model if one is named."""
    from tvm.target import Target

    from ..host import host_target
    from ..session.target import kernel_target

    if given is not None:
        return kernel_target(given, threads=1)
    host = host_target()
    return host if mcpu is None else Target(json.loads(str(host)) | {"mcpu": mcpu})


def _refuse_cut_spaces(target: "Target", definitions: "dict[str, Definition]") -> None:
    """Raise ``ModelError`` that names the spaces with CPU rules if the target is not a CPU."""
    from ..session.errors import ModelError
    from ..session.target import runs_on

    cut = [name for name, definition in definitions.items() if not definition.is_whole]
    if cut and runs_on(target) != "cpu":
        raise ModelError(
            f"{', '.join(cut)}: its rules are for CPUs, and the target is of kind "
            f"{target.kind.name}; expected whole spaces, which droplet-ms space sample list names"
        )


def _show(options: argparse.Namespace) -> int:
    """Print the size, the failures, the times and the noise of spaces."""
    from ..bench.space import Space, SpaceError, find_space, shipped_spaces

    names = options.spaces or list(shipped_spaces())
    if not names:
        return fail("space", "there is no space to show")
    try:
        spaces = [Space.load(find_space(name)) for name in names]
    except SpaceError as error:
        return fail("space", error)
    print(_table(spaces))
    return 0


_HEADER = ["space", "points", "modules", "failed", "optimum us", "best 1%", "median", "noise"]


def _table(spaces: Sequence["Space"]) -> str:
    """A Markdown table of spaces, a legend, and the machine and date of each measurement."""
    return "\n\n".join(
        [
            align([_HEADER, *map(_cells, spaces)]),
            "Best 1% and median are times over the optimum. Noise: the median over the modules of "
            "the interquartile range over the passes.",
            *map(_describe, spaces),
        ]
    )


def _cells(space: "Space") -> list[str]:
    times = sorted(module.time for module in space.modules if module.secs)
    failed = sum(
        point.module is None or not space.modules[point.module].secs for point in space.points
    )
    return [
        space.name,
        str(len(space.points)),
        str(len(space.modules)),
        f"{failed / len(space.points):.1%}",
        f"{times[0] * 1e6:.1f}",
        f"{times[len(times) // 100] / times[0]:.2f}",
        f"{median(times) / times[0]:.2f}",
        f"{median(map(_spread, (m.secs for m in space.modules if m.secs))):.1%}",
    ]


def _spread(secs: Sequence[float]) -> float:
    """The interquartile range divided by the median; 0 for a single pass."""
    low, middle, high = quartiles(secs)
    return (high - low) / middle


def _describe(space: "Space") -> str:
    machine = ", ".join(f"{name} {value}" for name, value in space.machine.items())
    versions = ", ".join(f"{name} {value}" for name, value in space.versions.items())
    passes = max((len(module.secs) for module in space.modules), default=0)
    return (
        f"{space.name}: {space.description}. {passes} passes on {space.date}; target "
        f"{dict(space.target)}; {machine}; {versions}."
    )


def _features(options: argparse.Namespace) -> int:
    """Replay the measured schedules of spaces and samples, and write the features and the measured
    times of each workload to a file that `droplet-ms pretrain` reads. A file that is up to date is
    kept."""
    from ..bench.definition import UnknownDefinitionError, trust
    from ..bench.space import SpaceError, find_space, shipped_training_files
    from ..bench.training import read_space_once
    from ..cost_model.kinds import extractor_of
    from ..measure import fast_start

    fast_start()
    trust(*options.trust)
    files = [
        file
        for text in options.spaces
        for file in (shipped_training_files() if text == "shipped" else [find_space(text)])
    ]
    try:
        extractor = extractor_of(options.model)
    except ValueError as error:
        return fail("space", error)
    try:
        for file in files:
            name = file.name.removesuffix(".gz").removesuffix(".json")
            out = options.out / f"{name}.npz"
            workload = read_space_once(file, out, extractor=extractor)
            print(f"{out}: {len(workload.secs)} records of {workload.name}", flush=True)
    except (SpaceError, UnknownDefinitionError) as error:
        return fail("space", error)
    return 0

# SPDX-License-Identifier: Apache-2.0

"""The command ``droplet-ms space sample``."""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import fail

if TYPE_CHECKING:
    from tvm.target import Target

    from ..bench.definition import Definition

SAMPLE_POINTS = 128


def run_sample(options: argparse.Namespace) -> int:
    """Time some schedules of workloads."""
    if options.workloads == ["list"]:
        from ..bench.definition import SAMPLED

        for name, make in SAMPLED.items():
            print(f"{name}: {make().description}")
        return 0
    from ..measure import fast_start

    fast_start()
    from ..bench.definition import UnknownDefinitionError, find_definition
    from ..bench.making.building import build_sample
    from ..session.errors import ModelError

    try:
        definitions = {name: find_definition(name) for name in options.workloads}
        target = _target(options.target, options.mcpu)
        _refuse_cut_spaces(target, definitions)
    except (UnknownDefinitionError, ModelError) as error:
        return fail("space", error)
    status = 0
    for name, definition in definitions.items():
        sample = partial(
            build_sample, definition, name, target, points=options.points, passes=options.passes
        )
        status |= _write_once(options.out / f"{definition.name}.json.gz", name, sample)
    return status


def _write_once(out: Path, name: str, sample: Callable[..., object]) -> int:
    """Make a sample if its file is missing, and return the exit status."""
    from ..bench.work_directory import CollectionError, remove
    from ..display.steps import console_steps

    if out.exists():
        print(f"{out} is there already")
        return 0
    out.parent.mkdir(parents=True, exist_ok=True)
    directory = out.with_name(out.name + ".work")
    try:
        with console_steps(name) as progress:
            sample(directory=directory, out=out, progress=progress)
    except CollectionError as error:
        return fail("space", f"{name}: {error}")
    remove(directory)
    print(f"wrote {out}")
    return 0


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

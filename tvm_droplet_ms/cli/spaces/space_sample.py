# SPDX-License-Identifier: Apache-2.0

"""The command ``droplet-ms space sample``."""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm.target import Target

SAMPLE_POINTS = 128


def run_sample(options: argparse.Namespace) -> int:
    """Time some schedules of workloads."""
    if options.workloads == ["list"]:
        from ...bench.definitions import sampled_definitions

        for name, make in sampled_definitions().items():
            print(f"{name}: {make().description}")
        return 0
    from ...measure import fast_start

    fast_start()
    from ...bench.definitions import UnknownDefinitionError, find_definition
    from ...bench.making.building import build_sample

    try:
        definitions = {name: find_definition(name) for name in options.workloads}
    except UnknownDefinitionError as error:
        print(f"droplet-ms space: error: {error}", file=sys.stderr)
        return 1
    target = _target(options.mcpu)
    status = 0
    for name, definition in definitions.items():
        sample = partial(
            build_sample, definition, name, target, points=options.points, passes=options.passes
        )
        status |= _write_once(options.out / f"{definition.name}.json.gz", name, sample)
    return status


def _write_once(out: Path, name: str, sample: Callable[..., object]) -> int:
    """Make a sample where its file is missing, and return the status of the command."""
    from ...bench.work_directory import CollectionError, remove
    from ...display.steps import console_steps

    if out.exists():
        print(f"{out} is there already")
        return 0
    out.parent.mkdir(parents=True, exist_ok=True)
    directory = out.with_name(out.name + ".work")
    try:
        with console_steps(name) as progress:
            sample(directory=directory, out=out, progress=progress)
    except CollectionError as error:
        print(f"droplet-ms space: error: {name}: {error}", file=sys.stderr)
        return 1
    remove(directory)
    print(f"wrote {out}")
    return 0


def _target(mcpu: str | None) -> "Target":
    """This machine's target, for another CPU's instructions where one is named."""
    from tvm.target import Target

    from ...host import host_target

    host = host_target()
    return host if mcpu is None else Target(json.loads(str(host)) | {"mcpu": mcpu})

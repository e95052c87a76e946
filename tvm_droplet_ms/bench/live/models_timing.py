# SPDX-License-Identifier: Apache-2.0
"""Times a model's libraries and the programs that people run it with: a child of ``models``."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ...deviation import largest_deviation
from ...tuning.frontends import import_model
from ..model_zoo import load_model
from .baselines import BASELINES
from .programs import Program, ProgramError, time_in_turns
from .store import Task, environment, serve

REFERENCE = "ONNX Runtime"
"""Outputs are compared with those of this program."""


def time_programs(task: Task) -> dict[str, Any]:
    """Time every library of a model, and every program that can run it, once a round.

    Returns ``secs``, the seconds of each round by the program's name; ``deviations`` of outputs
    from those of ONNX Runtime; ``refused``, why a program does not run the model; ``environment``.
    """
    settings = task.settings
    generator = np.random.default_rng(0)
    imported = import_model(load_model(settings["model"]))
    inputs = [spec.random(generator) for spec in imported.inputs]
    given = {
        name: {"library": str(task.out / library)}
        for name, library in settings["libraries"].items()
    }
    given |= {name: {"name": name} for name in BASELINES}
    programs: dict[str, Program] = {}
    refused: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="droplet_programs_") as folder:
        np.savez(Path(folder) / "inputs.npz", *inputs)
        shared = {
            "model": settings["model"],
            "threads": settings["threads"],
            "inputs": str(Path(folder) / "inputs.npz"),
        }
        try:
            for number, (name, own) in enumerate(given.items()):
                files = Path(folder) / str(number)
                files.mkdir()
                try:
                    programs[name] = Program({**shared, **own}, files)
                except ProgramError as error:
                    refused[name] = str(error)
            if REFERENCE not in programs:
                raise SystemExit(f"{REFERENCE} does not run the model: {refused[REFERENCE]}")
            secs = time_in_turns(programs, settings["rounds"])
        finally:
            for program in programs.values():
                program.close()
    expected = programs[REFERENCE].outputs
    deviations = {
        name: largest_deviation(program.outputs, expected) for name, program in programs.items()
    }
    return {
        "secs": secs,
        "deviations": deviations,
        "refused": refused,
        "environment": environment(),
    }


if __name__ == "__main__":
    serve(time_programs)

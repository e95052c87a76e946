# SPDX-License-Identifier: Apache-2.0
"""Child process of ``models``: times a model's libraries and the programs of ``baselines``."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tvm_droplet_ms.frontends import import_model
from tvm_droplet_ms.measure import TaskFailed
from tvm_droplet_ms.measure.deviation import largest_deviation
from tvm_droplet_ms.session.threads import set_own_threads

from ..gpu.rows import last_words
from ..store import Task, environment, serve
from ..zoo.quantized_models import QUANTIZED_MODELS, load_any_model
from .baselines import BASELINES, OF_HALVES
from .compare_models import IN_BFLOAT16
from .programs import Program, time_in_turns

REFERENCE = "ONNX Runtime"
"""The program whose outputs are the reference."""


def time_programs(task: Task) -> dict[str, Any]:
    """Time every library of a model, and every program that can run it, once per round.

    Returns ``secs``, the seconds of each round by the program's name; ``deviations`` of the outputs
    from the outputs of ONNX Runtime; ``refused``, the reason why a program does not run the model,
    such as a missing package; ``environment``.
    """
    settings = task.settings
    set_own_threads(settings["threads"])
    generator = np.random.default_rng(0)
    imported = import_model(load_any_model(settings["model"]))
    inputs = [spec.random(generator) for spec in imported.inputs]
    given = {
        name: {"library": str(task.out / library)}
        for name, library in settings["libraries"].items()
    }
    # By default, OpenVINO computes the parts of a quantized model that are not 8-bit in bfloat16.
    # Time it in both precisions, so that the faster one counts.
    has_halves = settings["model"] in QUANTIZED_MODELS
    has_halves |= any(name.startswith(IN_BFLOAT16) for name in given)
    given |= {name: {"name": name} for name in (*BASELINES, *(OF_HALVES if has_halves else ()))}
    programs: dict[str, Program] = {}
    refused: dict[str, str] = {}
    shared = {"model": settings["model"], "threads": settings["threads"]}
    with tempfile.TemporaryDirectory(prefix="droplet_programs_") as folder:
        try:
            for number, (name, own) in enumerate(given.items()):
                files = Path(folder) / str(number)
                files.mkdir()
                try:
                    programs[name] = Program({**shared, **own}, inputs, files)
                except TaskFailed as failure:
                    refused[name] = last_words(failure)
            secs, failures = time_in_turns(programs, settings["rounds"])
        finally:
            for program in programs.values():
                program.close()
    refused |= {name: last_words(failure) for name, failure in failures.items()}
    if REFERENCE not in programs:
        raise SystemExit(f"{REFERENCE} does not run the model: {refused[REFERENCE]}")
    expected = programs[REFERENCE].outputs
    deviations = {name: largest_deviation(programs[name].outputs, expected) for name in secs}
    return {
        "secs": secs,
        "deviations": deviations,
        "refused": refused,
        "environment": environment(),
    }


if __name__ == "__main__":
    serve(time_programs)

# SPDX-License-Identifier: Apache-2.0
"""Times the libraries of a model and what it came from in turns: a child of ``models``."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ...deviation import largest_deviation
from ...session.threads import set_own_threads
from ...tuning.compile.compiled_model import CompiledModel
from ...tuning.frontends import import_model
from ..model_zoo import TORCH_MODELS, load_model
from .store import Task, environment, serve

WARMING = 2
"""Rounds that do not count."""


def time_libraries(task: Task) -> dict[str, Any]:
    """Time every library of a model, and its references, once a round.

    Returns ``secs``, the seconds of each round by the program's name; ``deviations``, those of the
    libraries from the reference; ``environment``.
    """
    settings = task.settings
    set_own_threads(1)
    model = load_model(settings["model"])
    imported = import_model(model)
    generator = np.random.default_rng(0)
    inputs = [spec.random(generator) for spec in imported.inputs]
    references = _references(settings["model"], model, imported)
    # Each runs once before it is timed: torch.compile compiles then.
    expected, *_ = [run(inputs) for run in references.values()]
    timers: dict[str, Callable[[], float]] = {
        name: _timer(run, inputs) for name, run in references.items()
    }
    deviations = {}
    for name, library in settings["libraries"].items():
        compiled = CompiledModel.load(task.out / library)
        deviations[name] = largest_deviation(compiled(inputs), expected)
        timers[name] = compiled.timer(inputs)
    secs: dict[str, list[float]] = {name: [] for name in timers}
    for number in range(-WARMING, settings["rounds"]):
        for name, timer in timers.items():
            taken = timer()
            if number >= 0:
                secs[name].append(taken)
    return {"secs": secs, "deviations": deviations, "environment": environment()}


def _references(name: str, model: Any, imported: Any) -> dict[str, Callable[..., Any]]:
    if imported.reference is None:
        raise SystemExit("pip install onnxruntime, or torch: there is nothing to compare with")
    references = {imported.reference.name: imported.reference.run}
    if name in TORCH_MODELS:
        import torch

        torch.set_num_threads(1)
        module, _ = model
        compiled = torch.compile(module)

        def run(inputs: list[np.ndarray]) -> list[np.ndarray]:
            with torch.no_grad():
                return [compiled(*map(torch.from_numpy, inputs)).numpy()]

        references["torch.compile"] = run
    return references


def _timer(run: Callable[..., Any], inputs: list[np.ndarray]) -> Callable[[], float]:
    def timed() -> float:
        start = time.perf_counter()
        run(inputs)
        return time.perf_counter() - start

    return timed


if __name__ == "__main__":
    serve(time_libraries)

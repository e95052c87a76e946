# SPDX-License-Identifier: Apache-2.0
"""Times compiled graphs in turns, in a separate process.

The address of the weights affects the time. In a process that had searched before, the times of two
copies of the same program differed by up to 1.13x in every round. A new process loads all graphs
under the same conditions, and each call starts another process.
"""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from tvm_droplet_ms.measure import WorkerPool, prepare_to_time
from tvm_droplet_ms.measure.turns import time_in_alternation
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel

MOST_ROUNDS, FEWEST_ROUNDS, TIMED_SECS = 301, 7, 4.0
"""The maximum and minimum number of timing rounds, and the target seconds for all rounds. Slow
graphs get fewer rounds."""

MOST_SECS = 600.0
"""The time limit in seconds for all rounds. Past it, a graph counts as hung."""


def time_graphs(
    graphs: Mapping[str, CompiledModel], inputs: Sequence[np.ndarray]
) -> dict[str, list[float]]:
    """Time compiled graphs in turns, in a new process.

    ``graphs``: the graphs, by name. ``inputs``: the inputs that all graphs get. Returns the seconds
    of each graph in each round, by name. Raises ``TaskFailed`` if the process dies or hangs. Raises
    ``OSError`` if a library cannot be written.
    """
    with (
        tempfile.TemporaryDirectory(prefix="droplet_graphs_") as folder,
        closing(WorkerPool(1, prepare=prepare_to_time)) as pool,
    ):
        libraries = {name: f"{folder}/{number}.so" for number, name in enumerate(graphs)}
        for name, graph in graphs.items():
            graph.export(libraries[name])
        task = pool.submit(MOST_SECS, time_libraries, libraries, list(inputs))
        secs: dict[str, list[float]] = task.result()
        return secs


def time_libraries(
    libraries: Mapping[str, str], inputs: Sequence[np.ndarray]
) -> dict[str, list[float]]:
    """Load compiled graphs from libraries and time them in turns in this process."""
    models = {name: CompiledModel.load(Path(path)) for name, path in libraries.items()}
    timers = {name: model.timer(inputs) for name, model in models.items()}
    once = time_in_alternation(timers, 1)
    each = sum(secs for (secs,) in once.values())
    rounds = int(TIMED_SECS / each) if each > 0 else MOST_ROUNDS
    return time_in_alternation(timers, max(FEWEST_ROUNDS, min(MOST_ROUNDS, rounds)))

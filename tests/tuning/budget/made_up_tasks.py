# SPDX-License-Identifier: Apache-2.0
"""A model of made-up tasks: a table of their times after each batch, and rules that tune it."""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class MadeUpTask:
    """A task, its time before any batch, its best time after each, and what each batch costs."""

    weight: float
    bound: float
    pick: float
    best: tuple[float, ...]
    cost: tuple[float, ...]


def make_tasks(
    seed: int, count: int = 30, batches: int = 200, kind: str = "slowing"
) -> list[MadeUpTask]:
    """Tasks as those of a vision model: few are heavy, and those come near their roofline.

    ``kind``: how a task gets faster: "slowing", by rarer and rarer steps; "steady", by a like share
    of what is left with every batch; "sudden", by a few large steps at any time.
    """
    rng = random.Random(f"{seed} {kind}")
    tasks = []
    for _ in range(count):
        exponent = rng.uniform(-5, -2.5)
        bound = 10**exponent
        # Convolutions come near the core's peak; what only moves memory stays above its bound.
        heavy = exponent > -3.75
        floor = bound * rng.choice([1.02, 1.05, 1.1, 1.3] if heavy else [1.1, 1.5, 2.0, 4.0])
        time = floor * rng.uniform(1.3, 4.0)
        pick = time * rng.uniform(1.0, 2.0)
        best, cost = [], []
        # The first progress is fast, and the later the rarer.
        luck, seconds = rng.uniform(0.5, 2.0), rng.uniform(0.2, 0.8)
        for batch in range(batches):
            if batch:
                time = floor + (time - floor) * _kept(kind, luck, batch, rng)
            best.append(time)
            cost.append(seconds * rng.uniform(0.8, 1.2) * (3.0 if batch == 0 else 1.0))
        weight = rng.choice([1, 1, 1, 2, 3, 6])
        tasks.append(MadeUpTask(weight, bound, pick, tuple(best), tuple(cost)))
    return tasks


def _kept(kind: str, luck: float, batch: int, rng: random.Random) -> float:
    """The share of what is left to the floor that remains after a batch."""
    if kind == "steady":
        return 1.0 - 0.2 * luck * rng.random()
    if kind == "sudden":
        return rng.uniform(0.0, 0.5) if rng.random() < 0.08 * luck else 1.0
    return rng.uniform(0.3, 1.0) if rng.random() < luck / batch**0.5 else 1.0


@dataclass
class Replay:
    """A run over the table: what was measured, and when."""

    tasks: list[MadeUpTask]
    clock: float = 0.0

    def __post_init__(self):
        self.batches = [0] * len(self.tasks)
        self.chosen = []

    def run(self, task: int) -> tuple[float, float]:
        """Measure a batch; its best time and its cost."""
        batch = self.batches[task]
        self.batches[task] += 1
        self.chosen.append(task)
        cost = self.tasks[task].cost[batch]
        self.clock += cost
        return self.tasks[task].best[batch], cost

    def best(self, task: int) -> float:
        """A task's time now: that of its first pick before it is measured."""
        batches = self.batches[task]
        made_up = self.tasks[task]
        return min(made_up.pick, made_up.best[batches - 1]) if batches else made_up.pick

    def latency(self) -> float:
        """The seconds of the whole model."""
        return sum(task.weight * self.best(index) for index, task in enumerate(self.tasks))


def by_priorities(tasks, priorities, secs) -> Replay:
    """Tune by the rule under test until it ends."""
    replay = Replay(tasks)
    while replay.clock < secs:
        task = priorities.next(secs - replay.clock)
        if task is None:
            break
        priorities.tell(task, *replay.run(task))
        if replay.batches[task] == len(tasks[task].best):
            priorities.end(task)
    return replay


def by_gradient(tasks, secs, alpha=0.2, window=3) -> Replay:
    """TVM's GradientBased: one batch each, then the largest weight times a mean of two slopes."""
    replay = Replay(tasks)
    histories: list[list[float]] = [[] for _ in tasks]

    def gradient(task: int) -> float:
        history = histories[task]
        n, best = len(history), history[-1]
        recent = (history[-1 - window] - best) / window if n > window else 0.0
        return tasks[task].weight * (alpha * recent + (1 - alpha) * best / n)

    order = list(range(len(tasks)))
    while replay.clock < secs:
        task = order.pop(0) if order else max(range(len(tasks)), key=gradient)
        best, _ = replay.run(task)
        histories[task].append(min([best, *histories[task]]))
    return replay


def by_turns(tasks, secs) -> Replay:
    """Round robin."""
    replay = Replay(tasks)
    while replay.clock < secs:
        replay.run(len(replay.chosen) % len(tasks))
    return replay

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
"""Exploit as a raindrop: coordinate descent over the decisions of one sketch's traces."""

from collections.abc import Sequence
from dataclasses import dataclass

from .candidates import Candidate, Replayer
from .coordinate_descent import CoordinateDescent, Proposal
from .decisions import Sketch
from .history import History
from .neighbourhood import Neighbourhood, Point
from .significance import Noise, Verdict


@dataclass(frozen=True)
class Trial:
    """A candidate of a descent's batch.

    Parameters
    ----------
    candidate : Candidate
        What to measure.
    proposal : Proposal | None
        What asked for it; None for the incumbent, measured again to learn the noise.
    """

    candidate: Candidate
    proposal: Proposal | None


@dataclass(frozen=True)
class Step:
    """An accepted step.

    Parameters
    ----------
    change : str
        The decisions that changed.
    verdict : Verdict
        The comparison that it rests on.
    """

    change: str
    verdict: Verdict


class Descent:
    """A coordinate descent whose points are realised by replay and known by their modules.

    Parameters
    ----------
    sketch : Sketch
        The sketch that is descended.
    incumbent : Candidate
        The start; it must have been measured with success.
    replayer : Replayer
        Replays traces on the workload.
    history : History
        What was measured, which is never proposed again.
    noise : Noise
        The judge of what is faster.
    parallel_limit : int
        The largest parallel extent to try; 0 to leave the parallel loop as it is.
    joint_steps : bool
        Whether the directions that improved in one batch are followed jointly.

    Attributes
    ----------
    incumbent : Candidate
        The best so far.
    steps : list[Step]
        The accepted steps that the caller has not taken off the list.
    """

    def __init__(
        self,
        sketch: Sketch,
        incumbent: Candidate,
        replayer: Replayer,
        history: History,
        noise: Noise,
        parallel_limit: int,
        *,
        joint_steps: bool = True,
    ) -> None:
        self.incumbent = incumbent
        self.steps: list[Step] = []
        self._sketch = sketch
        self._replayer = replayer
        self._history = history
        self._noise = noise
        self._parallel_limit = parallel_limit
        point = sketch.read(incumbent.trace)
        self._replayed: dict[Point, Candidate | None] = {point: incumbent}
        self._search = CoordinateDescent(
            point, self._neighbourhood(incumbent), joint_steps=joint_steps
        )

    def _neighbourhood(self, candidate: Candidate) -> Neighbourhood:
        return self._replayer.neighbourhood(self._sketch, candidate.trace, self._parallel_limit)

    def _realise(self, proposal: Proposal) -> Candidate | None:
        """Replay a proposal, once for each incumbent."""
        if proposal.point not in self._replayed:
            trace = self._sketch.write(self.incumbent.trace, proposal.point)
            self._replayed[proposal.point] = self._replayer.replay(trace)
        return self._replayed[proposal.point]

    def propose(self) -> list[Trial]:
        """The proposals that were never measured, in the order in which to fill a batch.

        Those that were measured before are judged here by their known times, which may move the
        incumbent for free.

        Returns
        -------
        trials : list[Trial]
            Empty when the incumbent is a local optimum.
        """
        while not self._search.converged:
            fresh: dict[int, Trial] = {}
            known: list[Trial] = []
            for proposal in self._search.ask():
                candidate = self._realise(proposal)
                if candidate is None:
                    self._search.reject(proposal)
                elif candidate in self._history:
                    known.append(Trial(candidate, proposal))
                else:
                    # Another point of the same module is judged once this one was measured.
                    fresh.setdefault(candidate.module, Trial(candidate, proposal))
            times = [self._history.secs(trial.candidate) for trial in known]
            moved = self._judge(known, times, self._history.secs(self.incumbent))
            if fresh and not moved:
                return list(fresh.values())
        return []

    def tell(self, trials: Sequence[Trial], times: Sequence[tuple[float, ...]]) -> None:
        """Judge a measured batch, and move the incumbent to the best of its improvements.

        Parameters
        ----------
        trials : Sequence[Trial]
            The batch.
        times : Sequence[tuple[float, ...]]
            The valid times of each in seconds; empty for a failure.
        """
        again = [
            sec for trial, secs in zip(trials, times) if trial.proposal is None for sec in secs
        ]
        # What the machine does drifts: times of one batch compare with each other.
        self._judge(trials, times, again or self._history.secs(self.incumbent))

    def _judge(
        self,
        trials: Sequence[Trial],
        times: Sequence[tuple[float, ...]],
        incumbent_secs: Sequence[float],
    ) -> bool:
        improvements: list[tuple[Trial, Proposal, Verdict]] = []
        for trial, secs in zip(trials, times):
            if trial.proposal is None:
                continue
            verdict = self._noise.compare(secs, incumbent_secs) if secs else None
            if verdict is not None and verdict.faster:
                improvements.append((trial, trial.proposal, verdict))
            else:
                self._search.reject(trial.proposal)
        if not improvements:
            return False
        trial, best, verdict = max(improvements, key=lambda improvement: improvement[2].gain)
        before = self._sketch.read(self.incumbent.trace)
        after = self._sketch.read(trial.candidate.trace)
        self.steps.append(Step(self._sketch.describe_change(before, after), verdict))
        self.incumbent = trial.candidate
        self._replayed = {}
        self._search.accept(
            best,
            [proposal for _, proposal, _ in improvements],
            after,
            self._neighbourhood(trial.candidate),
        )
        return True

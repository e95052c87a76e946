# SPDX-License-Identifier: Apache-2.0
"""The proposals for a GPU that TVM's postprocessors accept. Builds and runs nothing.

``python tests/gpu/acceptance.py`` prints a row for each workload, type and target; ``--help`` has
the options. Measured times are made up from the decisions. "masked" are random schedules that
the draft refuses before TVM's postprocessors see them: they count as no proposals. "dropped" are
accepted ones that the search itself drops, such as those that compute things many times over.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from conformance.driving import drive
from conformance.objectives import rugged, timed

from tvm import IRModule, te, topi
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.cost_model.draft.gpu.gpu_limits import TaskLimits
from tvm_droplet_ms.search_strategy.candidates import REPEATED_SUM, ScreenedReplayer
from tvm_droplet_ms.search_strategy.published.candidates import Candidate

TARGETS = ("nvidia/nvidia-v100", "nvidia/nvidia-a100", "nvidia/nvidia-h100")
TRIALS = 16
MASK = "LaunchMask"
AFTER_TVM = ("WorkLimit", REPEATED_SUM)


def softmax(dtype: str) -> Sequence[Any]:
    data = te.placeholder((512, 1024), name="A", dtype=dtype)
    return [data, topi.nn.softmax(data, axis=1)]


def layer_norm(dtype: str) -> Sequence[Any]:
    data = te.placeholder((512, 768), name="X", dtype=dtype)
    scale, shift = (te.placeholder((768,), name=name, dtype=dtype) for name in "GB")
    return [data, scale, shift, topi.nn.layer_norm(data, scale, shift, axis=[1])]


def rms_norm(dtype: str) -> Sequence[Any]:
    data = te.placeholder((512, 4096), name="X", dtype=dtype)
    scale = te.placeholder((4096,), name="G", dtype=dtype)
    return [data, scale, topi.nn.rms_norm(data, scale, axis=[1])]


def layer(name: str, *shape: int) -> Callable[[str], Sequence[Any]]:
    """A workload of TVM's, whose last arguments are the types of what it reads and sums."""
    function = getattr(te_workload, name)
    return lambda dtype: function(*shape, dtype, "int32" if dtype == "int8" else dtype)


WORKLOADS: Mapping[str, Callable[[str], Sequence[Any]]] = {
    "dense": layer("matmul", 1024, 1024, 1024),
    "batch_matmul": layer("batch_matmul_nkkm", 12, 128, 128, 64),
    "conv2d_nhwc": layer("conv2d_nhwc", 1, 56, 56, 64, 64, 3, 1, 1, 1, 1),
    "conv2d_nchw": layer("conv2d_nchw", 1, 56, 56, 64, 64, 3, 3, 1, 1, 1),
    "depthwise": layer("depthwise_conv2d_nhwc", 1, 112, 112, 32, 3, 1, 1, 1, 1),
    "softmax": softmax,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
}


@dataclass
class Accepted:
    """The outcomes of the proposals of one search.

    ``accepted``: by TVM's postprocessors. ``dropped``: accepted, and dropped by the search.
    ``masked``: refused by the draft. ``refused``: by the postprocessor or the error. ``sketches``:
    all of the workload; ``reasons``: those that the draft does not understand, by the reason.
    """

    proposed: int = 0
    accepted: int = 0
    dropped: int = 0
    masked: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    sketches: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def share(self) -> float:
        return self.accepted / max(self.proposed, 1)

    def note(self, result: Candidate | str) -> None:
        if result == MASK:
            self.masked += 1
            return
        self.proposed += 1
        if isinstance(result, str) and result not in AFTER_TVM:
            self.refused[result.removeprefix("s_tir.meta_schedule.").partition("(")[0]] += 1
        else:
            self.accepted += 1
            self.dropped += isinstance(result, str)


@contextmanager
def counted() -> Iterator[Accepted]:
    """Count what all searches propose meanwhile."""
    counts, begin, count = Accepted(), TaskLimits.__post_init__, ScreenedReplayer._counted
    drafts: list[TaskLimits] = []

    def noted(self: ScreenedReplayer, result: Candidate | str) -> Candidate | None:
        counts.note(result)
        return count(self, result)

    def begun(self: TaskLimits) -> None:
        begin(self)
        drafts.append(self)

    ScreenedReplayer._counted, TaskLimits.__post_init__ = noted, begun  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        ScreenedReplayer._counted = count  # type: ignore[method-assign]
        TaskLimits.__post_init__ = begin  # type: ignore[method-assign]
    for draft in drafts:
        counts.sketches += len(draft.spaces.sketches)
        counts.reasons += draft.not_understood()


def context_of(workload: str, dtype: str, target: str, strategy: Any = None) -> ms.TuneContext:
    """The task of a workload, to be searched by ``DropletStrategy`` or another strategy."""
    func = te.create_prim_func(WORKLOADS[workload](dtype))
    return ms.TuneContext(
        IRModule({"main": func.with_attr("global_symbol", "main")}),
        target=Target(target),
        space_generator="post-order-apply",
        search_strategy=strategy or DropletStrategy(),
        rand_state=1,
        num_threads=1,
    )


def search(workload: str, dtype: str, target: str, trials: int = TRIALS) -> Accepted:
    """Search a workload for a target with made-up times."""
    context = context_of(workload, dtype, target)
    with counted() as counts:
        drive(context, timed(rugged), max_trials=trials, num_trials_per_iter=8)
    return counts


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--types", nargs="+", default=["float32", "float16"])
    parser.add_argument("--targets", nargs="+", default=list(TARGETS))
    parser.add_argument("--trials", type=int, default=TRIALS)
    args = parser.parse_args(argv)
    names = "workload type target proposed accepted share dropped masked sketches refused".split()
    print(f"| {' | '.join(names)} |")
    print(f"| {' | '.join(['---'] * len(names))} |")
    with fast_tune_contexts():
        for target in args.targets:
            for workload in args.workloads:
                for dtype in args.types:
                    found = search(workload, dtype, target, args.trials)
                    print(_row([workload, dtype, target.rpartition("-")[2]], found), flush=True)


def _row(names: Sequence[str], found: Accepted) -> str:
    understood = f"{found.sketches - found.reasons.total()} of {found.sketches}"
    reasons = [f"{count} with {reason}" for reason, count in found.reasons.items()]
    refused = [f"{count} {name}" for name, count in found.refused.most_common()]
    cells = [
        *names,
        str(found.proposed),
        str(found.accepted),
        f"{found.share:.0%}",
        str(found.dropped),
        str(found.masked),
        "; ".join([understood, *reasons]),
        ", ".join(refused) or "none",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()

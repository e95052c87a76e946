# SPDX-License-Identifier: Apache-2.0
"""The record that is handed over, with times, verdicts and failures of a GPU that are made up."""

import json
import math
from types import SimpleNamespace

import pytest

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm_droplet_ms.measure import TaskFailed
from tvm_droplet_ms.session.records import FAILED_SECS, RECORDS, correct_times
from tvm_droplet_ms.tuning.kernel import KernelError
from tvm_droplet_ms.tuning.kernel.check.verification import (
    CannotCheck,
    DeviceFailed,
    Expected,
    KernelTime,
    Verdict,
)
from tvm_droplet_ms.tuning.kernel.choice import MOST_GROUPS, Choice

MATMUL = IRModule({"main": te.create_prim_func(te_workload.matmul(8, 8, 8))})


class MadeUpVerifier:
    """Knows the new time of each record, which are wrong, and which cannot be built again.

    ``failing``: those that the device does not run.
    """

    advice = "give others with inputs="

    def __init__(self, new_secs, wrong=(), unbuilt=(), failing=(), expected=None, untuned=100.0):
        self.new_secs, self.wrong, self.unbuilt = new_secs, wrong, unbuilt
        self.failing = failing
        self.expected = expected or Expected("untuned.so", "", 0.25)
        self.untuned = untuned
        self.built, self.timed = [], []

    def expect(self, mod):
        return self.expected

    def build(self, name, mod):
        position = int(name.removeprefix("best"))
        self.built.append(position)
        if position in self.unbuilt:
            raise TaskFailed("machinery", "no room")
        return position

    def check(self, library):
        if library in self.failing:
            raise DeviceFailed("the device failed twice: out of memory")
        return Verdict(library not in self.wrong, 0.0, "wrong" * (library in self.wrong))

    def time(self, libraries):
        self.timed.append(sorted(libraries))
        secs = {
            key: self.untuned if key == "untuned" else self.new_secs[at]
            for key, at in libraries.items()
        }
        return {key: KernelTime(value, value, value) for key, value in secs.items()}


def choose(tmp_path, verifier, recorded):
    """The choice, and the times in the file afterwards."""
    rows = [[0, [[], [secs], None, []]] for secs in recorded]
    (tmp_path / RECORDS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = SimpleNamespace(apply_to_schedule=lambda *_args, **_named: None)
    ranked = [
        (position, SimpleNamespace(run_secs=[secs], trace=trace))
        for position, secs in sorted(enumerate(recorded), key=lambda pair: pair[1])
    ]
    chosen = Choice("k", MATMUL, tmp_path, verifier).choose(ranked)
    lines = (tmp_path / RECORDS).read_text().splitlines()
    return chosen, [json.loads(line)[1][1][0] for line in lines]


def test_the_fastest_of_five_timed_again_is_handed_over(tmp_path):
    verifier = MadeUpVerifier({0: 5.0, 1: 4.5, 2: 4.0, 3: 5.0, 4: 5.0})
    chosen, secs = choose(tmp_path, verifier, [1.0, 2.0, 3.0, 3.1, 3.2, 6.0, 7.0])
    assert (chosen.library, chosen.time.secs, chosen.untuned.secs) == (2, 4.0, 100.0)
    assert secs == [5.0, 4.5, 4.0, 5.0, 5.0, 6.0, 7.0]
    assert verifier.built == [0, 1, 2, 3, 4]


def test_what_tvm_might_apply_is_checked_and_timed_too(tmp_path):
    """Of those behind the five, two are faster by their records than the winner's new time."""
    verifier = MadeUpVerifier({**dict.fromkeys(range(5), 6.5), 6: 9.0}, wrong=(5,))
    chosen, secs = choose(tmp_path, verifier, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 6.4, 7.0])
    assert verifier.built == [0, 1, 2, 3, 4, 5, 6]
    assert verifier.timed[1:] == [["best0", "best6", "untuned"]]
    assert secs == [6.5] * 5 + [FAILED_SECS, 9.0, 7.0]
    assert (chosen.library, chosen.wrong) == (0, ["wrong"])


def test_the_winner_may_be_behind_the_five(tmp_path):
    new_secs = {**dict.fromkeys(range(10), 9.0), 7: 4.0}
    recorded = [1.0, 1.1, 1.2, 1.3, 1.4, 2.0, 2.1, 5.0, 6.0, 7.0]
    chosen, secs = choose(tmp_path, MadeUpVerifier(new_secs), recorded)
    assert (chosen.library, chosen.time.secs) == (7, 4.0)
    assert min(secs) == secs[7] == 4.0


def test_the_last_times_of_the_best_count(tmp_path):
    """The machine was slow while the first five were timed."""

    class Slowing(MadeUpVerifier):
        def time(self, libraries):
            times = super().time(libraries)
            factor = 10.0 if len(self.timed) == 1 else 1.0
            return {
                name: KernelTime(factor * one.secs, factor * one.low, factor * one.high)
                for name, one in times.items()
            }

    chosen, secs = choose(tmp_path, Slowing({0: 1.0, 1: 1.1}), [1.0])
    assert chosen.time.secs == 10.0
    verifier = Slowing({number: 1.0 + 0.1 * number for number in range(7)})
    chosen, secs = choose(tmp_path, verifier, [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6])
    assert (chosen.library, chosen.time.secs) == (0, 1.0)
    assert secs == pytest.approx([1.0, 11.0, 12.0, 13.0, 14.0, 1.5, 1.6])


def test_the_groups_that_are_timed_again_end(tmp_path):
    verifier = MadeUpVerifier(dict.fromkeys(range(40), 9.0), wrong=(30,))
    chosen, secs = choose(tmp_path, verifier, [1.0 + 0.1 * number for number in range(40)])
    assert len(verifier.timed) == MOST_GROUPS
    # The rest is checked: TVM may apply one.
    assert verifier.built == list(range(40))
    # None keeps a time that was lucky.
    assert secs[chosen.library] == min(secs) == 9.0 and secs[30] == FAILED_SECS
    assert secs[39] == pytest.approx(9.0) and secs[39] > 9.0


def test_wrong_ones_give_their_place_to_others(tmp_path):
    verifier = MadeUpVerifier(dict.fromkeys(range(7), 1.0), wrong=(0, 3))
    _, secs = choose(tmp_path, verifier, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
    assert secs == [FAILED_SECS, 1.0, 1.0, FAILED_SECS, 1.0, 1.0, 1.0]


def test_what_cannot_be_built_again_keeps_its_record(tmp_path):
    verifier = MadeUpVerifier({1: 1.0}, unbuilt=(0,))
    chosen, secs = choose(tmp_path, verifier, [0.5, 0.6])
    assert secs == [0.5, 1.0]
    assert chosen.library == 1 and "no room" in chosen.unchecked[0]
    assert not chosen.wrong
    with pytest.raises(KernelError, match="could not be checked: .*no room.* kept in"):
        choose(tmp_path, MadeUpVerifier({}, unbuilt=(0,)), [0.5])


def test_what_the_device_does_not_run_again_is_not_called_wrong(tmp_path):
    """The best that was checked is handed over, and the record of the other stays."""
    verifier = MadeUpVerifier({1: 1.0, 2: 1.1}, wrong=(2,), failing=(0,))
    chosen, secs = choose(tmp_path, verifier, [0.5, 0.6, 0.7])
    assert secs == [0.5, 1.0, FAILED_SECS]
    assert (chosen.library, chosen.wrong) == (1, ["wrong"])
    said = "it did not run again: the device failed twice: out of memory"
    assert chosen.unchecked == [said]
    with pytest.raises(KernelError, match=f"could not be checked: {said}. The records are kept"):
        choose(tmp_path, MadeUpVerifier({}, failing=(0, 1)), [0.5, 0.6])


@pytest.mark.parametrize(("works", "library", "secs"), [(0, 0, [0.5, 0.6]), (1, 1, [3.0, 2.0])])
def test_a_device_that_fails_while_timing_leaves_the_times_before(tmp_path, works, library, secs):
    """Those of the tuning, or of the group that was timed before."""

    class Failing(MadeUpVerifier):
        def time(self, libraries):
            if len(self.timed) == works:
                raise DeviceFailed("the device failed twice: it hangs")
            return super().time(libraries)

    others = [0.9, 0.91, 0.92, 1.9]  # The last is behind the five, and faster than their times.
    new_secs = {0: 3.0, 1: 2.0, 2: 9.0, 3: 9.0, 4: 9.0, 5: 0.1}
    verifier = Failing(new_secs, expected=Expected(None, "", math.nan))
    chosen, found = choose(tmp_path, verifier, [0.5, 0.6, *others])
    assert (chosen.library, chosen.time.secs) == (library, min(secs))
    assert found[:2] == secs and found[5] == 1.9
    assert chosen.unchecked == ["the best were not timed again: the device failed twice: it hangs"]


def test_where_all_are_wrong_there_is_none(tmp_path):
    with pytest.raises(KernelError, match="none of the 2 measured schedules of k computes"):
        choose(tmp_path, MadeUpVerifier({}, wrong=(0, 1)), [0.5, 0.6])
    lines = (tmp_path / RECORDS).read_text().splitlines()
    assert [json.loads(line)[1][1] for line in lines] == [[FAILED_SECS], [FAILED_SECS]]


def test_a_slow_untuned_kernel_is_called_once_only(tmp_path):
    verifier = MadeUpVerifier({0: 1.0}, expected=Expected("untuned.so", "", 20.0))
    chosen, _ = choose(tmp_path, verifier, [1.0])
    assert verifier.timed == [["best0"]]
    assert chosen.untuned == KernelTime(20.0, 20.0, 20.0)


def test_without_outputs_to_expect_nothing_is_refused(tmp_path):
    expected = Expected("untuned.so", "it crashed", math.nan)
    verifier = MadeUpVerifier({0: 1.0}, wrong=(0,), expected=expected)
    chosen, secs = choose(tmp_path, verifier, [1.0])
    assert chosen.verdict.is_right is None and chosen.verdict.reason == "it crashed"
    assert (chosen.untuned, secs) == (None, [1.0])


def test_a_kernel_that_is_faster_without_a_schedule_is_handed_over_so(tmp_path):
    verifier = MadeUpVerifier({0: 5.0, 1: 4.0}, untuned=3.9)
    chosen, secs = choose(tmp_path, verifier, [1.0, 2.0])
    assert chosen.is_untuned and chosen.verdict.is_right
    assert (chosen.library, chosen.time.secs, chosen.untuned.secs) == ("untuned.so", 3.9, 3.9)
    assert not chosen.schedule.trace.insts
    assert secs == [5.0, 4.0]
    slow = MadeUpVerifier({0: 30.0}, expected=Expected("untuned.so", "", 20.0))
    assert choose(tmp_path, slow, [1.0])[0].is_untuned
    tuned, _ = choose(tmp_path, MadeUpVerifier({0: 5.0, 1: 4.0}, untuned=4.1), [1.0, 2.0])
    assert (tuned.library, tuned.is_untuned) == (1, False)


def test_a_kernel_that_crashes_without_a_schedule_too_asks_for_other_values(tmp_path):
    class Crashing(MadeUpVerifier):
        def time(self, libraries):
            raise CannotCheck("timing them: its process was ended by SIGFPE", True)

    crashed = Expected("untuned.so", "its process was ended by SIGFPE", math.nan)
    with pytest.raises(KernelError, match="also without a schedule: .*SIGFPE. give others with"):
        choose(tmp_path, Crashing({0: 1.0}, expected=crashed), [1.0])
    # Else it is not the values. What is wrong is refused in any case.
    with pytest.raises(KernelError, match="could not be checked: timing them: .*run again"):
        choose(tmp_path, Crashing({1: 1.0}, wrong=(0,)), [1.0, 2.0])
    lines = (tmp_path / RECORDS).read_text().splitlines()
    assert [json.loads(line)[1][1] for line in lines] == [[FAILED_SECS], [2.0]]


def test_a_schedule_that_crashes_while_it_is_timed_is_refused(tmp_path):
    class Crashing(MadeUpVerifier):
        def time(self, libraries):
            if "best0" in libraries:
                raise CannotCheck("timing them: its process was ended by SIGSEGV", True)
            return super().time(libraries)

    chosen, secs = choose(tmp_path, Crashing({1: 4.0, 2: 3.0}), [1.0, 2.0, 2.5])
    assert (chosen.library, secs) == (2, [FAILED_SECS, 4.0, 3.0])
    assert chosen.wrong == ["timing them: its process was ended by SIGSEGV"]
    with pytest.raises(KernelError, match="none of the 1 measured .*SIGSEGV"):
        choose(tmp_path, Crashing({}), [1.0])


def test_only_named_records_get_other_times(tmp_path):
    rows = [[0, [["trace"], [float(n)], {"kind": "llvm"}, []]] for n in range(3)]
    (tmp_path / RECORDS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    correct_times(tmp_path, {1: [9.0], 2: [1e10]})
    found = [json.loads(line) for line in (tmp_path / RECORDS).read_text().splitlines()]
    assert [row[1][1] for row in found] == [[0.0], [9.0], [1e10]]
    for row, before in zip(found, rows, strict=True):
        row[1][1] = before[1][1]
    assert found == rows
    assert [path.name for path in tmp_path.iterdir()] == [RECORDS]

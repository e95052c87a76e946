# SPDX-License-Identifier: Apache-2.0
"""The kernels that decide between plans, and their trials. Imports no TVM."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from .kernels import Kernel
from .measured_prices import FoundPlan, MeasuredPrice

FIRST_TRIALS, MORE_TRIALS = 8, 32
"""The trials of a kernel that is timed, and of one that may decide."""

AT_ONCE = 8
"""The most kernels that are timed before the next extraction: what they took tells what others may
take."""

LEAST_GAIN = 0.01
"""The share that a plan must promise to save to be worth more trials, and that a graph must save in
three of four rounds: less is a tie."""

Timer = Callable[[Sequence[Kernel], int], Mapping[Kernel, float | None]]
"""Times kernels with a number of trials each; None for one that cannot be timed. Those that it has
no time for are missing."""


def time_what_is_wanted(
    price: MeasuredPrice,
    extract: Callable[[], FoundPlan | None],
    timer: Timer,
    is_due: Callable[[], bool],
    first: Sequence[FoundPlan] = (),
) -> list[FoundPlan]:
    """Extract, time what the plan wants, and extract again, until it wants nothing new.

    What not all plans have is timed before what they share: it decides between them, and there may
    not be time for all. So the largest kernels come first, ``AT_ONCE`` in a round.

    - ``price``: the prices, which learn.
    - ``extract``: finds the cheapest plan by these prices; None where there is none.
    - ``is_due``: whether no more is to be timed.
    - ``first``: plans whose kernels are timed too, before all others.

    Returns the plans of all rounds, the last one last.
    """
    found: list[FoundPlan] = []
    while (best := extract()) is not None:
        found.append(best)
        wanted = price.unknown([*first, best])
        if not wanted or is_due():
            break
        known = len(price.timed)
        shared = set.intersection(*(set(each.kernels) for each in [*first, best]))
        deciding = [kernel for kernel in wanted if kernel not in shared] or wanted
        largest = sorted(deciding, key=lambda kernel: -price.bound_of(kernel))
        price.learn(timer(largest[:AT_ONCE], FIRST_TRIALS))
        if len(price.timed) == known:
            break
    return found


def time_what_may_win(
    price: MeasuredPrice,
    extract: Callable[[], FoundPlan | None],
    timer: Timer,
    is_due: Callable[[], bool],
) -> list[FoundPlan]:
    """Give more trials to plans that would be the cheapest if these were worth as much as hoped.

    So a plan is found that only was unlucky with its first trials. In the end no other plan is
    cheaper by more than ``LEAST_GAIN``, unless more trials save more than is hoped.

    - ``price``: the prices, which learn.
    - ``extract``: finds the cheapest plan by these prices; None where there is none.
    - ``is_due``: whether no more is to be timed.

    Returns the plans of all rounds, the last one last.
    """
    found: list[FoundPlan] = []
    while (best := extract()) is not None:
        found.append(best)
        own = set(best.kernels)
        with price.hoping(but_for=own):
            rival = None if is_due() else extract()
        if rival is None or rival.plan.cost > (1 - LEAST_GAIN) * best.plan.cost:
            break
        unknown = price.unknown([rival])
        others = [kernel for kernel in rival.kernels if kernel not in own]
        trials = FIRST_TRIALS if unknown else MORE_TRIALS
        secs = timer(unknown or _worth_most(others, price), trials)
        if not secs:
            break
        price.learn(secs)
        price.firm.update(() if unknown else secs)
    return found


def _worth_most(kernels: Sequence[Kernel], price: MeasuredPrice) -> list[Kernel]:
    """The kernels that half of what may be saved depends on, those with the most first."""
    stakes = {kernel: calls * price.hope(kernel) for kernel, calls in Counter(kernels).items()}
    ranked = sorted(stakes, key=lambda kernel: -stakes[kernel])
    half, chosen = sum(stakes.values()) / 2, list[Kernel]()
    while ranked and sum(stakes[kernel] for kernel in chosen) < half:
        chosen.append(ranked.pop(0))
    return chosen

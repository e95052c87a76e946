# SPDX-License-Identifier: Apache-2.0
"""Chooses the kernels to time, so that the best plan can be told from others. Imports no TVM."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from .kernels import Kernel
from .measured_prices import FoundPlan, MeasuredPrice

FIRST_TRIALS, MORE_TRIALS = 8, 32
"""The trials of every timed kernel, and of a kernel that may decide between plans."""

AT_ONCE = 8
"""The maximum number of kernels to time before the next extraction. Their times predict those of
similar kernels."""

LEAST_GAIN = 0.01
"""The minimum relative gain. A plan must promise this gain to get more trials. A graph must reach
it in three of four rounds to win; otherwise, the result is a tie."""

Timer = Callable[[Sequence[Kernel], int], Mapping[Kernel, float | None]]
"""Times kernels with a given number of trials each. Its result maps a kernel that cannot be timed
to None and lacks kernels for which the time ran out."""


def time_what_is_wanted(
    price: MeasuredPrice,
    extract: Callable[[], FoundPlan | None],
    timer: Timer,
    is_due: Callable[[], bool],
    first: Sequence[FoundPlan] = (),
) -> list[FoundPlan]:
    """Extract a plan, time its kernels, and repeat until the plan has no untimed kernels.

    Kernels that not all plans share are timed first, because they decide between the plans and the
    time may not suffice for all. For the same reason, the largest of these kernels come first,
    ``AT_ONCE`` in each round.

    - ``price``: the price model, which learns from measured times.
    - ``extract``: finds the cheapest plan under these prices; returns None if there is none.
    - ``is_due``: returns whether to stop timing.
    - ``first``: further plans whose kernels are also timed.

    Returns the plans of all rounds, in order.
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
    """Give more trials to plans that would be the cheapest if these trials helped as hoped.

    This finds plans whose first trials were merely unlucky. At the end, no other plan is cheaper by
    more than ``LEAST_GAIN``, unless more trials would save more than hoped.

    - ``price``: the price model, which learns from measured times.
    - ``extract``: finds the cheapest plan under these prices; returns None if there is none.
    - ``is_due``: returns whether to stop timing.

    Returns the plans of all rounds, in order.
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
    """The kernels with the largest possible savings, which together make up half of the total."""
    stakes = {kernel: calls * price.hope(kernel) for kernel, calls in Counter(kernels).items()}
    ranked = sorted(stakes, key=lambda kernel: -stakes[kernel])
    half, chosen = sum(stakes.values()) / 2, list[Kernel]()
    while ranked and sum(stakes[kernel] for kernel in chosen) < half:
        chosen.append(ranked.pop(0))
    return chosen

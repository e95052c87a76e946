# SPDX-License-Identifier: Apache-2.0
"""The classes that every plan computes, and the independent parts between them.

A class that every plan computes, in its only layout, is available whatever else is chosen.
Therefore, the problems above and below it are independent. The blocks of a network are such parts.
The time of one integer program for all of them grows exponentially with their number. Imports no
TVM.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from .problem import Choice, Conversion, Place, Problem, Step

FEW_CHOICES = 200
"""Parts with at most this many choices are merged: a solver start costs more than it saves."""

SMALL = -1
"""The number of the part that combines all small parts."""


class Part(NamedTuple):
    """A part of a problem.

    ``problem``: the choices of some classes, without the needs that every plan satisfies.
    ``whole``: maps the ``id`` of such a choice to the original choice with all its needs.
    """

    problem: Problem
    whole: dict[int, Choice]

    def in_full(self, steps: Iterable[Step]) -> list[Step]:
        """Convert steps of the part to steps of the whole problem."""
        return [self.whole.get(id(step), step) for step in steps]


def independent_parts(problem: Problem, needed: Collection[int]) -> list[Part]:
    """Divide a problem at the classes that every plan computes.

    Returns the parts, the smallest first. Classes that a part shares with other parts are among its
    roots. Each plan of the problem contains a plan of every part, so the optima of the parts add up
    to a lower bound. The plans of all parts combine to a plan of the problem, unless steps of
    different parts form a cycle.
    """
    given = _given(problem, needed)
    part_of = _together_if_small(problem, _linked(problem, given))
    choices: dict[int, list[Choice]] = {part: [] for part in part_of.values()}
    conversions: dict[int, list[Conversion]] = {part: [] for part in choices}
    roots: dict[int, list[Place]] = {part: [] for part in choices}
    whole: dict[int, Choice] = {}
    for choice in problem.choices:
        alone = choice._replace(needs=tuple(need for need in choice.needs if need not in given))
        whole[id(alone)] = choice
        choices[part_of[choice.place[0]]].append(alone)
    for conversion in problem.conversions:
        conversions[part_of[conversion.place[0]]].append(conversion)
    for root in dict.fromkeys([*problem.roots, *sorted(given)]):
        roots[part_of[root[0]]].append(root)
    parts = [
        Part(Problem(choices[part], conversions[part], roots[part]), whole)
        for part in choices
        if roots[part]
    ]
    return sorted(parts, key=lambda part: len(part.problem.choices))


def _given(problem: Problem, needed: Collection[int]) -> set[Place]:
    """The places that every plan computes: the needed classes with only one place."""
    places: dict[int, set[Place]] = {}
    steps: list[Step] = [*problem.choices, *problem.conversions]
    for step in steps:
        places.setdefault(step.place[0], set()).add(step.place)
    return {place for number in needed if len(places[number]) == 1 for place in places[number]}


def _linked(problem: Problem, given: Collection[Place]) -> dict[int, int]:
    """The part of each class: connected components, where choices link classes to their needs."""
    numbers = list(problem.by_class)
    index = {number: at for at, number in enumerate(numbers)}
    links = [
        (index[choice.place[0]], index[need[0]])
        for choice in problem.choices
        for need in choice.needs
        if need not in given and need[0] in index
    ]
    users, used = np.array(links, dtype=int).reshape(-1, 2).T
    shape = (len(numbers), len(numbers))
    matrix = csr_matrix((np.ones(len(links)), (users, used)), shape=shape)
    part_of = connected_components(matrix, directed=False)[1]
    return {number: int(part) for number, part in zip(numbers, part_of)}


def _together_if_small(problem: Problem, part_of: dict[int, int]) -> dict[int, int]:
    sizes = Counter(part_of[choice.place[0]] for choice in problem.choices)
    return {n: part if sizes[part] > FEW_CHOICES else SMALL for n, part in part_of.items()}


def needed_classes(problem: Problem) -> set[int]:
    """The classes that every derivation of the roots contains.

    The result is the greatest fixpoint of need(c) = {c} | intersection over the e-nodes of c of the
    union of need(operand). This holds for cyclic e-graphs too, by induction on a derivation.
    """
    numbers = sorted({choice.place[0] for choice in problem.choices})
    bit = {number: 1 << index for index, number in enumerate(numbers)}
    everything = (1 << len(numbers)) - 1
    need = dict.fromkeys(numbers, everything)
    operands = {
        number: list(dict.fromkeys(operands_of(choice) for choice in choices))
        for number, choices in problem.by_class.items()
    }
    changed = True
    while changed:
        changed = False
        for number in numbers:
            common = everything
            for children in operands[number]:
                union = 0
                for child in children:
                    union |= need.get(child, 0)
                common &= union
            new = common | bit[number]
            if new != need[number]:
                need[number], changed = new, True
    total = 0
    for number, _ in problem.roots:
        total |= need.get(number, 0)
    return {number for number in numbers if total & bit[number]}


def operands_of(choice: Choice) -> tuple[int, ...]:
    """The distinct classes that a choice needs."""
    return tuple(dict.fromkeys(number for number, _ in choice.needs))

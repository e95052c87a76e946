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
"""Search among single graphs with backtracking, as TASO does it (Jia et al., SOSP 2019, section 6).

It is what graph searches did before e-graphs: a substitution replaces a part of the graph, the
graphs wait in the order of their costs, and those that cost more than ``ALPHA`` times the best are
dropped. Rules and prices are those of the other searches.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from ..graph.equality.egraph import EGraph
from ..graph.equality.facts import IllegalTerm
from ..graph.equality.language import COMMUTATIVE, Node, Term
from ..graph.relax.types import RelaxTypes
from ..graph.rules.rule import FLOATS, Conditions, Equality, Rule

ALPHA = 1.05
"""What a graph may cost that others are made of, over the best: as published."""


@dataclass
class SingleGraph:
    """A graph: each class has one e-node.

    Attributes
    ----------
    graph : EGraph
        The graph.
    roots : list[int]
        The classes of its results.
    key : int
        Equal graphs have equal keys.
    """

    graph: EGraph
    roots: list[int]
    key: int


@dataclass
class Backtracked:
    """What a search found.

    Attributes
    ----------
    cost : float
        The cost of the best graph.
    nodes : int
        Its e-nodes.
    priced : int
        How many graphs were priced.
    complete : bool
        Whether no graph is left that others could be made of.
    """

    cost: float
    nodes: int
    priced: int
    complete: bool


def backtrack(
    start: SingleGraph,
    rules: Sequence[Rule],
    cost: Callable[[EGraph, Sequence[int]], float],
    types: RelaxTypes,
    most_priced: int,
) -> Backtracked:
    """Search from a graph.

    Parameters
    ----------
    start : SingleGraph
        The graph.
    rules : Sequence[Rule]
        The rules.
    cost : Callable[[EGraph, Sequence[int]], float]
        The cost of a graph, and of its results.
    types : RelaxTypes
        Infers types.
    most_priced : int
        The most graphs to price.
    """
    order = count()
    best = cost(start.graph, start.roots)
    found, priced, seen = start, 1, {start.key}
    waiting = [(best, next(order), start)]
    while waiting:
        least, _, here = heapq.heappop(waiting)
        if least > ALPHA * best:
            continue
        for group in substitutions(here.graph, rules):
            if priced >= most_priced:
                return Backtracked(best, found.graph.size, priced, False)
            after = substituted(here, group, types)
            if after is None or after.key in seen:
                continue
            seen.add(after.key)
            priced += 1
            value = cost(after.graph, after.roots)
            if value < best:
                best, found = value, after
            if value <= ALPHA * best:
                heapq.heappush(waiting, (value, next(order), after))
    return Backtracked(best, found.graph.size, priced, True)


def substitutions(graph: EGraph, rules: Sequence[Rule]) -> Iterator[list[Equality]]:
    """What may be replaced: equalities that share a new part, such as merged siblings, together."""
    for rule in rules:
        groups: list[tuple[set[int], list[Equality]]] = []
        for equality in rule.matches(graph, Conditions(rule.conditions)):
            dtype = getattr(graph.facts(equality.number).type, "dtype", None)
            if not rule.exact and dtype not in FLOATS:
                continue
            parts = set(map(id, _parts(equality.term)))
            sharing = [group for group in groups if group[0] & parts]
            members = [one for _, group in sharing for one in group]
            for names, _ in sharing:
                parts |= names
            groups = [group for group in groups if not any(group is each for each in sharing)]
            groups.append((parts, [*members, equality]))
        yield from (group for _, group in groups)


def _parts(term: Term | int) -> Iterator[Term]:
    if isinstance(term, Term):
        yield term
        for child in term.children:
            yield from _parts(child)


def substituted(
    here: SingleGraph, group: Sequence[Equality], types: RelaxTypes
) -> SingleGraph | None:
    """The graph with its classes replaced; None where that is illegal or would be a cycle."""
    grown = here.graph.copy()
    grown.limit = None
    replaced: dict[int, int] = {}
    try:
        for number, term in group:
            added = grown.add_term(term, here.graph.facts(number).type)
            if added != number:
                replaced.setdefault(number, added)
    except IllegalTerm:
        return None
    return single(grown, here.roots, types, replaced) if replaced else None


def single(
    graph: EGraph, roots: Sequence[int], types: RelaxTypes, replaced: dict[int, int]
) -> SingleGraph | None:
    """The graph of the first e-node of each class that the roots need; None where it is a cycle.

    Parameters
    ----------
    graph : EGraph
        An e-graph in which nothing was made equal, without weights among its inputs.
    roots : Sequence[int]
        The classes of the results.
    types : RelaxTypes
        Infers types.
    replaced : dict[int, int]
        Classes to take in the place of others.
    """
    new = EGraph(types)
    names: dict[int, int] = {}
    keys: dict[int, int] = {}
    entered: set[int] = set()
    wanted = [replaced.get(root, root) for root in roots]
    stack = [(number, False) for number in reversed(wanted)]
    while stack:
        number, is_ready = stack.pop()
        if number in names:
            continue
        node = graph.nodes(number)[0]
        children = [replaced.get(child, child) for child in node.children]
        if is_ready:
            names[number] = new.add(node.operator, tuple(names[child] for child in children))
            keys[number] = _key(node, [keys[child] for child in children])
            continue
        if number in entered:
            return None
        entered.add(number)
        missing = [child for child in children if child not in names]
        if any(child in entered for child in missing):
            return None
        stack.append((number, True))
        stack += [(child, False) for child in reversed(missing)]
    key = hash(tuple(keys[number] for number in wanted))
    return SingleGraph(new, [names[number] for number in wanted], key)


def _key(node: Node, operands: list[int]) -> int:
    commutes = node.operator.name in COMMUTATIVE
    return hash((node.operator, tuple(sorted(operands) if commutes else operands)))

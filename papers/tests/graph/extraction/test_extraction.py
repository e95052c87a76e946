# SPDX-License-Identifier: Apache-2.0
"""Extraction against enumeration on small random problems, and on problems worked by hand."""

from itertools import product

import numpy as np
import pytest

from tvm_droplet_papers.graph.extraction import integer_program, parts
from tvm_droplet_papers.graph.extraction.extract import extract, with_operators, without_layouts
from tvm_droplet_papers.graph.extraction.parts import needed_classes
from tvm_droplet_papers.graph.extraction.problem import (
    Choice,
    Conversion,
    Problem,
    needs_of,
    plan_of,
    tree_greedy,
)

PLAIN, OTHER = (), (1, 0)


def random_problem(rng, layouts):
    """Six classes, mostly of what is below, sometimes of what is above: that makes cycles."""
    count = 6
    choices = []
    for number in range(count):
        for _ in range(rng.integers(1, 4)):
            layout = layouts[rng.integers(len(layouts))]
            below = [n for n in range(count) if n != number and (n > number or rng.random() < 0.25)]
            size = min(len(below), int(rng.integers(0, 3)))
            picked = rng.choice(below, size, replace=False) if size else []
            needs = tuple((int(n), layouts[rng.integers(len(layouts))]) for n in picked)
            price = 0.0 if rng.random() < 0.2 else float(rng.uniform(0.1, 3))
            choices.append(Choice((number, layout), needs, price))
    conversions = [
        Conversion((n, b), (n, a), float(rng.uniform(0, 1.5)))
        for n in range(count)
        for a, b in product(layouts, layouts)
        if a != b
    ]
    return Problem(choices, conversions, [(0, PLAIN)])


def enumerated(problem):
    """The cheapest plan over all ways to compute each class once, or not at all."""
    best = float("inf")
    numbers = sorted(problem.by_class)
    for picked in product(*[[None, *problem.by_class[number]] for number in numbers]):
        steps = {choice.place: choice for choice in picked if choice is not None}
        for conversion in problem.conversions:
            if conversion.source in steps and isinstance(steps[conversion.source], Choice):
                steps.setdefault(conversion.place, conversion)
        plan = plan_of(problem, steps)
        best = min(best, plan.cost if plan is not None else float("inf"))
    return best


def solvable(seeds, layouts, change=lambda problem: problem):
    """Random problems that have a plan, each with the cost of its cheapest."""
    count = 0
    for seed in seeds:
        problem = change(random_problem(np.random.default_rng(seed), layouts))
        expected = enumerated(problem)
        if expected < float("inf"):
            count += 1
            yield problem, expected
    assert count


def check_plan(problem, plan):
    """A plan that derives its roots, operands first, and whose price is the sum of its steps."""
    made = set()
    for place, step in plan.steps.items():
        assert step.place == place
        assert set(needs_of(step)) <= made
        assert step in problem.choices or step in problem.conversions
        made.add(place)
    assert set(problem.roots) <= made
    assert plan.cost == pytest.approx(sum(step.price for step in plan.steps.values()))


@pytest.mark.parametrize("layouts", [(PLAIN,), (PLAIN, OTHER)])
@pytest.mark.parametrize("seed", range(40))
def test_cheapest_of_all(seed, layouts):
    problem = random_problem(np.random.default_rng(seed), layouts)
    expected = enumerated(problem)
    found = extract(problem, gap=0.0)
    if expected == float("inf"):
        assert found.plan is None
        return
    check_plan(problem, found.plan)
    assert found.plan.optimal
    # The greedy plan may compute a class in two layouts, which is not enumerated.
    assert found.plan.cost <= expected + 1e-6
    computed = [p[0] for p, step in found.plan.steps.items() if isinstance(step, Choice)]
    if len(computed) == len(set(computed)):
        assert found.plan.cost == pytest.approx(expected, abs=1e-6)
    baseline = tree_greedy(problem)
    check_plan(problem, baseline)
    assert baseline.cost >= found.plan.cost - 1e-6


def with_one_layout(problem):
    """The problem where the first classes are in no other layout than the plain one."""
    numbers = range(4)

    def moved(place):
        return (place[0], PLAIN) if place[0] in numbers else place

    choices = [
        Choice(moved(choice.place), tuple(map(moved, choice.needs)), choice.price)
        for choice in problem.choices
    ]
    conversions = [step for step in problem.conversions if step.place[0] not in numbers]
    return Problem(choices, conversions, problem.roots)


@pytest.mark.parametrize("layouts", [(PLAIN,), (PLAIN, OTHER)])
def test_parts_are_no_dearer_than_the_whole(layouts, monkeypatch):
    monkeypatch.setattr(parts, "FEW_CHOICES", 0)
    divided = 0
    # Only classes in one layout divide.
    for problem, expected in solvable(range(60), layouts, with_one_layout):
        alone = parts.independent_parts(problem, needed_classes(problem))
        bound = sum(enumerated(part.problem) for part in alone)
        assert bound <= expected + 1e-6
        divided += len(alone) > 1
        found = extract(problem, gap=0.0)
        check_plan(problem, found.plan)
        assert found.plan.optimal and found.plan.cost <= expected + 1e-6
        if layouts == (PLAIN,):
            assert found.plan.cost == pytest.approx(expected, abs=1e-6)
    assert divided > 5


def chained_blocks(count):
    """Blocks of two ways, 3 and 2 + 2 + 2 where the input of the block is used twice, in a row."""
    choices = [Choice((0, PLAIN), (), 1.0)]
    for start in range(0, 3 * count, 3):
        x, a, b, end = ((start + number, PLAIN) for number in range(4))
        choices += [Choice(a, (x,), 2.0), Choice(b, (x,), 2.0), Choice(end, (a, b), 2.0)]
        choices.append(Choice(end, (x,), 3.0))
    return Problem(choices, [], [(3 * count, PLAIN)])


def test_blocks_of_a_network_are_parts(monkeypatch):
    monkeypatch.setattr(parts, "FEW_CHOICES", 0)
    problem = chained_blocks(5)
    alone = parts.independent_parts(problem, needed_classes(problem))
    # The input of all, and each block with its end as what is wanted.
    assert [len(part.problem.choices) for part in alone] == [1, 4, 4, 4, 4, 4]
    assert {part.problem.roots[0] for part in alone} == {(n, PLAIN) for n in range(0, 16, 3)}
    assert extract(problem, gap=0.0).plan.cost == pytest.approx(1 + 5 * 3)


def test_small_parts_are_one():
    problem = chained_blocks(5)
    (alone,) = parts.independent_parts(problem, needed_classes(problem))
    assert len(alone.problem.choices) == len(problem.choices)
    whole = alone.in_full(alone.problem.choices)
    assert all(a is b for a, b in zip(whole, problem.choices, strict=True))


def test_parts_that_need_each_other_are_one_program(monkeypatch):
    """Either of two classes that are both wanted may be made of the other for nothing."""
    monkeypatch.setattr(parts, "FEW_CHOICES", 0)
    a, b = (0, PLAIN), (1, PLAIN)
    choices = [Choice(a, (), 5.0), Choice(b, (), 4.0), Choice(a, (b,), 1.0), Choice(b, (a,), 0.5)]
    problem = Problem(choices, [], [a, b])
    assert len(parts.independent_parts(problem, needed_classes(problem))) == 2
    found = extract(problem, gap=0.0)
    assert found.plan.optimal and found.plan.cost == pytest.approx(5.0)


def test_the_cheapest_trees_of_random_problems():
    """Every plan of trees is enumerated by its depth; what is shared counts once for each use."""
    for seed in range(40):
        problem = random_problem(np.random.default_rng(seed), (PLAIN, OTHER))
        costs = {}
        steps = [*problem.choices, *problem.conversions]
        for _ in range(2 * len(problem.by_class)):
            for step in steps:
                cost = step.price + sum(costs.get(need, np.inf) for need in needs_of(step))
                costs[step.place] = min(cost, costs.get(step.place, np.inf))
        plan = tree_greedy(problem)
        if plan is None:
            assert costs.get((0, PLAIN), np.inf) == np.inf
            continue
        check_plan(problem, plan)
        trees = {}
        for place, step in plan.steps.items():
            trees[place] = step.price + sum(trees[need] for need in needs_of(step))
            assert trees[place] == pytest.approx(costs[place])


@pytest.mark.parametrize("gap", [0.0, 0.05, 0.3])
def test_a_gap_bounds_what_is_missed(gap):
    for problem, expected in solvable(range(40), (PLAIN, OTHER)):
        found = extract(problem, gap=gap)
        # Reports are JSON, which knows no values of NumPy.
        assert found.plan.optimal is True and type(found.bound) is float
        assert found.bound <= expected + 1e-6
        assert found.plan.cost <= expected * (1 + gap) + 1e-6


def test_a_bound_without_layouts_holds_for_all_plans():
    tight = 0
    for problem, expected in solvable(range(60), (PLAIN, OTHER)):
        operators = extract(without_layouts(problem), gap=0.0).plan
        assert operators.cost <= expected + 1e-6
        rest = extract(with_operators(problem, operators), gap=0.0).plan
        if rest is not None:
            check_plan(problem, rest)
            assert rest.cost >= min(expected, extract(problem, gap=0.0).plan.cost) - 1e-6
            tight += rest.cost == pytest.approx(operators.cost, abs=1e-6)
    assert tight > 6


def test_operators_first_and_their_layouts_then():
    """A layer in the layout of its input, and one that is cheaper but wants another."""
    choices = [
        Choice((0, PLAIN), (), 0.0),
        Choice((1, PLAIN), ((0, PLAIN),), 10.0),
        Choice((1, OTHER), ((0, OTHER),), 9.0),
    ]
    conversions = [Conversion((0, OTHER), (0, PLAIN), 0.5), Conversion((1, PLAIN), (1, OTHER), 0.6)]
    problem = Problem(choices, conversions, [(1, PLAIN)])
    relaxed = without_layouts(problem)
    assert [choice.price for choice in relaxed.choices] == [0.0, 9.0]
    assert not relaxed.conversions
    # 9 + 0.5 + 0.6 is dearer than 10, though 9 alone is not.
    assert extract(problem, gap=0.0).plan.cost == pytest.approx(10.0)


def test_some_random_problems_have_cycles_that_are_cut():
    cuts = 0
    for seed in range(40):
        cuts += extract(random_problem(np.random.default_rng(seed), (PLAIN,))).cuts
    assert cuts > 0


def test_levels_forbid_all_cycles(monkeypatch):
    monkeypatch.setattr(integer_program, "CUT_ROUNDS", 0)
    for problem, expected in solvable(range(20), (PLAIN,)):
        assert extract(problem, gap=0.0).plan.cost == pytest.approx(expected, abs=1e-6)


def merged_siblings(merged):
    """Two layers of one input at 3 each, or slices of one merged layer."""
    x, a, b, both, root = range(5)
    place = {number: (number, PLAIN) for number in range(5)}
    choices = [
        Choice(place[x], (), 1.0),
        Choice(place[a], (place[x],), 3.0),
        Choice(place[b], (place[x],), 3.0),
        Choice(place[both], (place[x],), merged),
        Choice(place[a], (place[both],), 0.1),
        Choice(place[b], (place[both],), 0.1),
        Choice(place[root], (place[a], place[b]), 1.0),
    ]
    return Problem(choices, [], [place[root]])


@pytest.mark.parametrize(("merged", "cost"), [(4.0, 6.2), (6.5, 8.0)])
def test_merge_is_seen_by_the_program_alone(merged, cost):
    problem = merged_siblings(merged)
    assert extract(problem).plan.cost == pytest.approx(cost)
    assert tree_greedy(problem).cost == pytest.approx(8.0)


def test_what_is_shared_counts_once():
    """Twice a shared input of 10 is 20 to a tree, so a copy of 12 for both looks cheaper."""
    place = [(number, PLAIN) for number in range(4)]
    choices = [
        Choice(place[0], (), 10.0),
        Choice(place[1], (place[0],), 1.0),
        Choice(place[2], (place[0],), 1.0),
        Choice(place[3], (place[1], place[2]), 0.0),
        Choice(place[3], (), 14.0),
    ]
    problem = Problem(choices, [], [place[3]])
    assert tree_greedy(problem).cost == pytest.approx(14.0)
    assert extract(problem).plan.cost == pytest.approx(12.0)


def test_layouts_are_chosen_together():
    """Each layer is 1 faster in the other layout; two conversions of 2 pay for three layers."""
    for layers, cost in ((3, 30.0), (5, 49.0)):
        choices = [Choice((0, PLAIN), (), 0.0)]
        for number in range(1, layers + 1):
            for layout, price in ((PLAIN, 10.0), (OTHER, 9.0)):
                choices.append(Choice((number, layout), ((number - 1, layout),), price))
        conversions = [
            Conversion((n, b), (n, a), 2.0)
            for n in range(layers + 1)
            for a, b in ((PLAIN, OTHER), (OTHER, PLAIN))
        ]
        problem = Problem(choices, conversions, [(layers, PLAIN)])
        assert extract(problem).plan.cost == pytest.approx(cost)


def test_needed_classes_of_a_diamond():
    place = [(number, PLAIN) for number in range(5)]
    choices = [
        Choice(place[0], (place[1],), 1.0),
        Choice(place[0], (place[2],), 1.0),
        Choice(place[1], (place[3],), 1.0),
        Choice(place[2], (place[3], place[4]), 1.0),
        Choice(place[3], (), 1.0),
        Choice(place[4], (), 1.0),
    ]
    assert needed_classes(Problem(choices, [], [place[0]])) == {0, 3}


def test_without_time_there_is_the_greedy_plan():
    found = extract(merged_siblings(4.0), time_limit=0.0)
    assert found.plan.cost == pytest.approx(8.0)
    assert not found.plan.optimal
    assert "time limit of 0.0 s" in found.note


def test_what_cannot_be_computed_has_no_plan():
    problem = Problem([Choice((0, PLAIN), ((0, PLAIN),), 1.0)], [], [(0, PLAIN)])
    assert extract(problem).plan is None

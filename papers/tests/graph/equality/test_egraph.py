# SPDX-License-Identifier: Apache-2.0
"""The e-graph: congruence, facts, limits and copies, without TVM."""

import random

import pytest

from tvm_droplet_papers.graph.equality.egraph import EGraph, IllegalTerm, NodeLimit, OtherType
from tvm_droplet_papers.graph.equality.language import (
    Tensor,
    Term,
    constant_leaf,
    input_leaf,
    operator,
)
from tvm_droplet_papers.graph.equality.terms import add_term
from tvm_droplet_papers.graph.interpreter import infer
from tvm_droplet_papers.graph.rules.rule import Equality, apply_equalities, declare
from tvm_droplet_papers.graph.rules.terms import call
from tvm_droplet_papers.graph.tree_search.environment import fingerprint

TYPE = Tensor((2, 3), "float32")


@pytest.fixture
def graph():
    return EGraph(infer)


def leaf(graph, index, type_=TYPE):
    return graph.add(input_leaf(index, type_))


def test_equal_terms_are_one_class(graph):
    x, y = leaf(graph, 0), leaf(graph, 1)
    assert graph.add(operator("add"), (x, y)) == graph.add(operator("add"), (y, x))
    assert graph.add(operator("subtract"), (x, y)) != graph.add(operator("subtract"), (y, x))
    assert graph.size == 5


def test_union_spreads_upwards(graph):
    x, y = leaf(graph, 0), leaf(graph, 1)
    tops = [add_term(graph, call("relu", call("tanh", each))) for each in (x, y)]
    assert graph.union(x, y)
    graph.rebuild()
    assert graph.find(tops[0]) == graph.find(tops[1])
    # Two leaves, and one tanh and one relu of both.
    assert graph.size == 4
    assert not graph.union(tops[0], tops[1])


def test_textbook_congruence(graph):
    """From f(f(f(x))) = x and f(f(f(f(f(x))))) = x follows f(x) = x."""
    x = leaf(graph, 0)
    powers = [x]
    for _ in range(5):
        powers.append(graph.add(operator("relu"), (powers[-1],)))
    graph.union(powers[3], x)
    graph.union(powers[5], x)
    graph.rebuild()
    assert len({graph.find(power) for power in powers}) == 1
    assert graph.size == 2


def closed(terms, unions):
    """The class of each term, by pairs of terms with equal operands until nothing changes."""
    names = list(range(len(terms)))

    def join(one, other):
        low, high = sorted((names[one], names[other]))
        names[:] = [low if name == high else name for name in names]
        return low != high

    for one, other in unions:
        join(one, other)
    changed = True
    while changed:
        changed = False
        for one, (name, operands) in enumerate(terms):
            for other, (second, others) in enumerate(terms[:one]):
                same = [names[n] for n in operands] == [names[n] for n in others]
                if name == second and operands and same:
                    changed = join(one, other) or changed
    return names


@pytest.mark.parametrize("seed", range(40))
def test_congruence_is_closed(seed):
    """Random equalities, also of terms with their own operands."""
    rng = random.Random(seed)
    graph = EGraph(infer)
    terms = [("leaf", ()) for _ in range(3)]
    numbers = [leaf(graph, index) for index in range(3)]
    while len(terms) < 25:
        name = rng.choice(["relu", "tanh", "subtract"])
        operands = tuple(rng.randrange(len(terms)) for _ in range(1 + (name == "subtract")))
        terms.append((name, operands))
        numbers.append(graph.add(operator(name), tuple(numbers[n] for n in operands)))
    unions = [(rng.randrange(25), rng.randrange(25)) for _ in range(4)]
    for one, other in unions:
        graph.union(numbers[one], numbers[other])
    graph.rebuild()
    expected = closed(terms, unions)
    pairs = {(graph.find(number), name) for number, name in zip(numbers, expected)}
    assert len(pairs) == len({graph.find(number) for number in numbers}) == len(set(expected))


def test_classes_of_different_types_cannot_be_equal(graph):
    x, y = leaf(graph, 0), leaf(graph, 1, Tensor((3, 2), "float32"))
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(3, 2\).*a rule that makes them equal"):
        graph.union(x, y)


def test_illegal_term_adds_nothing(graph):
    x, y = leaf(graph, 0), leaf(graph, 1)
    before = graph.size
    with pytest.raises(IllegalTerm, match="matmul refuses"):
        add_term(graph, call("matmul", call("relu", x), call("tanh", y)))
    assert graph.size == before


def test_limit_holds_within_a_step(graph):
    x = leaf(graph, 0)
    graph.limit = 3
    with pytest.raises(NodeLimit, match="limit of 3"):
        add_term(graph, call("relu", call("tanh", call("sigmoid", x))))
    assert graph.size == 3


def test_weights_do_not_count_as_others(graph):
    x, w = leaf(graph, 0), graph.add(constant_leaf(0, TYPE))
    graph.limit = 2
    for name in ("relu", "tanh", "sigmoid"):
        w = graph.add(operator(name), (w,))
    assert (graph.size, graph.weight_size) == (1, 4)
    assert graph.is_weight(w) and not graph.is_weight(x)


def test_what_is_found_to_depend_on_weights_alone_tells_its_users(graph):
    x, w = leaf(graph, 0), graph.add(constant_leaf(0, TYPE))
    user = graph.add(operator("relu"), (x,))
    top = graph.add(operator("add"), (user, w))
    graph.union(x, w)
    graph.rebuild()
    assert graph.is_weight(user) and graph.is_weight(top)
    assert graph.size == 0


def test_copy_shares_nothing(graph):
    x, y = leaf(graph, 0), leaf(graph, 1)
    top = graph.add(operator("relu"), (x,))
    twin = graph.copy()
    twin.union(x, y)
    twin.add(operator("tanh"), (y,))
    twin.rebuild()
    assert graph.find(x) != graph.find(y)
    assert (graph.size, twin.size) == (3, 4)
    assert [node.operator.name for _, node in graph.users(x)] == ["relu"]
    assert {node.operator.name for _, node in twin.users(y)} == {"relu", "tanh"}
    assert graph.find(top) == top


def test_fingerprint_does_not_depend_on_the_order_of_steps(graph):
    x, y = leaf(graph, 0), leaf(graph, 1)
    top = graph.add(operator("add"), (x, y))
    origin = graph.count
    steps = [
        (top, call("relu", call("tanh", x))),
        (x, call("negative", call("negative", x))),
        (y, call("sigmoid", call("tanh", x))),
    ]

    def grown(order):
        twin = graph.copy()
        for place in order:
            number, term = steps[place]
            twin.union(number, add_term(twin, term))
            twin.rebuild()
        return fingerprint(twin, origin)

    prints = {grown(order) for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0])}
    assert len(prints) == 1
    assert len({grown([0]), grown([1]), grown([0, 1]), fingerprint(graph, origin), *prints}) == 5


def test_shared_parts_of_a_term_are_added_once(graph):
    """Sixty doublings: without sharing they would never end."""
    part = Term(input_leaf(0, TYPE))
    for _ in range(60):
        part = call("multiply", part, part)
    add_term(graph, part)
    assert graph.size == 61


def test_a_term_of_another_type_is_passed_over_and_counted(graph):
    """A wrong rule cannot end a search: what it says is dropped, and the rest is kept."""
    x = leaf(graph, 0)
    top = graph.add(operator("relu"), (x,))
    wider = call("reshape", x, shape=(1, 2, 3))
    with pytest.raises(OtherType, match="expected"):
        add_term(graph, wider, TYPE)
    rule = declare("fold", "wrong", lambda *_: iter(()))
    found = [Equality(top, wider), Equality(top, call("negative", x))]
    step = apply_equalities(graph, rule, found)
    assert (step.matched, step.mistyped, step.changed, graph.size) == (1, 1, True, 3)
    assert len(graph.nodes(top)) == 2

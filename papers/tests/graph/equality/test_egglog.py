# SPDX-License-Identifier: Apache-2.0
"""The e-graph against egglog: the same terms and rules give the same classes and e-nodes."""

import random
import re
from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from tvm_droplet_papers.graph.equality.egraph import EGraph
from tvm_droplet_papers.graph.equality.language import Tensor, Term, input_leaf
from tvm_droplet_papers.graph.equality.terms import add_term
from tvm_droplet_papers.graph.interpreter import infer
from tvm_droplet_papers.graph.rules import ALL_RULES
from tvm_droplet_papers.graph.rules.rule import saturate
from tvm_droplet_papers.graph.rules.terms import call, concat, permute

bindings = pytest.importorskip("egglog").bindings

UNARY = {"Relu": "relu", "Tanh": "tanh"}
ORDERS = list(permutations(range(3)))
LEAVES = 3
RULES = [
    rule
    for rule in ALL_RULES
    if rule.name
    in {
        "move of unary",
        "unary of move",
        "unary of concat",
        "concat of unary",
        "transpose of transpose",
    }
]
LANGUAGE = """
(datatype T (Leaf i64) (Relu T) (Tanh T) (Permute i64 T) (Concat T T) (Minus T T))
"""


def composed(outer, inner):
    """The order that a transpose after a transpose is, by what they do to an array."""
    cube = np.arange(24).reshape(2, 3, 4)
    both = cube.transpose(ORDERS[inner]).transpose(ORDERS[outer])
    (order,) = [o for o in ORDERS if np.array_equal(cube.transpose(o), both)]
    return ORDERS.index(order)


def egglog_rules():
    """The same rules in egglog's language."""
    lines = []
    for name in UNARY:
        lines.append(f"(birewrite ({name} (Permute p x)) (Permute p ({name} x)))")
        lines.append(f"(birewrite ({name} (Concat x y)) (Concat ({name} x) ({name} y)))")
    # ORDERS[0] moves nothing.
    lines.append("(rewrite (Permute 0 x) x)")
    for outer in range(len(ORDERS)):
        for inner in range(len(ORDERS)):
            both = composed(outer, inner)
            result = f"(Permute {both} x)" if both else "x"
            lines.append(f"(rewrite (Permute {outer} (Permute {inner} x)) {result})")
    return "\n".join(lines)


def random_terms(rng, count, kinds):
    """Terms of what is before them: (kind, what it has beside its operands, operands)."""
    terms = [("Leaf", index, ()) for index in range(LEAVES)]
    while len(terms) < count:
        kind = rng.choice(kinds)
        operands = [rng.randrange(len(terms)) for _ in range(1 + (kind in ("Concat", "Minus")))]
        terms.append((kind, rng.randrange(len(ORDERS)), tuple(operands)))
    return terms


def ours(terms, unions, rules):
    """The class of each term and the e-nodes of each kind, by the e-graph."""
    graph, built = EGraph(infer), []
    type_ = Tensor((3, 3, 3), "float32")
    for kind, extra, operands in terms:
        parts = [built[index] for index in operands]
        if kind == "Leaf":
            built.append(Term(input_leaf(extra, type_)))
        elif kind == "Permute":
            built.append(permute(parts[0], ORDERS[extra]))
        elif kind == "Concat":
            built.append(concat(parts, 0))
        elif kind == "Minus":
            built.append(call("subtract", *parts))
        else:
            built.append(call(UNARY[kind], parts[0]))
    numbers = [add_term(graph, term) for term in built]
    for one, other in unions:
        graph.union(numbers[one], numbers[other])
    graph.rebuild()
    assert saturate(graph, rules).complete
    kinds = {"input": "Leaf", "permute_dims": "Permute", "concat": "Concat", "subtract": "Minus"}
    kinds |= {name: kind for kind, name in UNARY.items()}
    sizes = Counter(kinds[node.operator.name] for _, nodes in graph.classes() for node in nodes)
    return [graph.find(number) for number in numbers], sizes


def theirs(terms, unions, rules):
    """The same by egglog; its extraction gives one term for each class."""
    lines = [LANGUAGE, rules]
    for number, (kind, extra, operands) in enumerate(terms):
        inside = [str(extra)] if kind in ("Leaf", "Permute") else []
        inside += [f"$t{index}" for index in operands]
        lines.append(f"(let $t{number} ({kind} {' '.join(inside)}))")
    lines += [f"(union $t{one} $t{other})" for one, other in unions]
    lines.append("(run-schedule (saturate (run)))")
    lines += [f"(extract $t{number})" for number in range(len(terms))]
    lines.append("(print-size)")
    graph = bindings.EGraph()
    results = list(map(str, graph.run_program(*graph.parse_program("\n".join(lines)))))
    sizes = re.findall(r"\((\w+) (\d+)\)", results[-1])
    classes = results[-1 - len(terms) : -1]
    return classes, Counter({kind: int(size) for kind, size in sizes if int(size)})


def check_alike(terms, unions, rules, egglog):
    (classes, sizes), (names, counted) = ours(terms, unions, rules), theirs(terms, unions, egglog)
    assert sizes == counted
    pairs = set(zip(classes, names, strict=True))
    assert len(pairs) == len(set(classes)) == len(set(names))
    return len(set(classes)), sum(sizes.values())


def test_the_same_rules_give_the_same_classes():
    """Concatenations grow: these are of leaves and functions of leaves."""
    joined = grown = 0
    for seed in range(30):
        rng = random.Random(seed)
        terms = random_terms(rng, 12, ["Relu", "Tanh", "Permute", "Permute"])
        low = len(terms)
        terms += [("Concat", 0, (rng.randrange(low), rng.randrange(low))) for _ in range(2)]
        terms += [(rng.choice(list(UNARY)), 0, (low + index,)) for index in (0, 0, 1)]
        terms += [("Permute", rng.randrange(6), (len(terms) - 1,))]
        before, _ = check_alike(terms, [], [], "")
        after, size = check_alike(terms, [], RULES, egglog_rules())
        joined += before - after
        grown += size > before
    assert joined > 20 and grown > 10


def test_the_same_equalities_give_the_same_classes():
    joined = 0
    for seed in range(60):
        rng = random.Random(seed)
        terms = random_terms(rng, 30, ["Relu", "Tanh", "Minus"])
        unions = [(rng.randrange(30), rng.randrange(30)) for _ in range(4)]
        before, _ = check_alike(terms, [], [], "")
        after, _ = check_alike(terms, unions, [], "")
        joined += before - after - len(unions)
    assert joined > 30

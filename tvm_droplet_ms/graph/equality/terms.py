# SPDX-License-Identifier: Apache-2.0
"""Terms in an e-graph: added, looked up, and their types. Imports no TVM."""

from .egraph import EGraph, OtherType
from .language import Node, Term, Type


def add_term(graph: EGraph, term: Term | int, type_: Type | None = None) -> int:
    """Add a term and everything in it, or nothing if it is illegal.

    ``term``: the term, or a class that is there. ``type_``: the type that it has to have. None:
    any. Raises ``OtherType`` if it has another type. ``EGraph.add`` says what else may be raised.
    """
    found = type_of_term(graph, term)
    if type_ is not None and found != type_:
        raise OtherType(f"a term has the type {found}, expected {type_}")
    added: dict[int, int] = {}

    def visit(part: Term | int) -> int:
        if isinstance(part, int):
            return graph.find(part)
        if id(part) not in added:
            added[id(part)] = graph.add(part.operator, tuple(map(visit, part.children)))
        return added[id(part)]

    return visit(term)


def known_class(graph: EGraph, term: Term | int) -> int | None:
    """The class of a term that is in the e-graph, rebuilt, already; None if it is not."""
    found: dict[int, int | None] = {}

    def visit(part: Term | int) -> int | None:
        if isinstance(part, int):
            return graph.find(part)
        if id(part) not in found:
            children = [visit(child) for child in part.children]
            node = Node(part.operator, tuple(c for c in children if c is not None))
            found[id(part)] = None if None in children else graph.class_of(node)
        return found[id(part)]

    return visit(term)


def type_of_term(graph: EGraph, term: Term | int) -> Type:
    """The type of a term, without adding it.

    Raises ``IllegalTerm`` if an operator in it refuses its operands.
    """
    known: dict[int, Type] = {}

    def visit(part: Term | int) -> Type:
        if isinstance(part, int):
            return graph.facts(part).type
        if id(part) not in known:
            known[id(part)] = graph.infer_type(
                part.operator, tuple([visit(child) for child in part.children])
            )
        return known[id(part)]

    return visit(term)

# SPDX-License-Identifier: Apache-2.0
"""Adds terms to an e-graph, looks them up, and infers their types. Imports no TVM."""

from .egraph import EGraph, OtherType
from .language import Node, Term, Type


def add_term(graph: EGraph, term: Term | int, type_: Type | None = None) -> int:
    """Add a term and all its subterms, or nothing if the term is illegal.

    ``term``: the term, or an existing class. ``type_``: the type that the term must have. None: any
    type. Raises ``OtherType`` if the term has a different type. See ``EGraph.add`` for the other
    errors.
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
    """The class of an existing term; None if it does not exist. The e-graph must be rebuilt."""
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
    """The type of a term. Does not add the term.

    Raises ``IllegalTerm`` if an operator in the term rejects its operands.
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

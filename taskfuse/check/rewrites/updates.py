"""What is sent to an element of an assembly: the points of each update whose place is that element, where no data says the place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from taskfuse.check.rewrites.digits import digits_of
from taskfuse.check.rewrites.sides import At, Definitions
from taskfuse.dtypes import DType
from taskfuse.ir.combine import Combine
from taskfuse.ir.scalar import TRUE, Expr, Facts, Sym, eq, ge, lt, substitute, sym
from taskfuse.kir.witness import Definition, Send, Whole


class SentTerms(NamedTuple):
    """The points of an update that go to an element.

    Attributes:
        term: what a point sends.
        variables: the axes of the points that the place leaves open, each with its exclusive upper bound.
        conditions: on them.
    """

    term: At
    variables: tuple[tuple[Sym, Expr], ...]
    conditions: tuple[Expr, ...]


SentPart = tuple[Definition, tuple[Expr, ...], Expr]
"""An update with the place of its points and the condition under which they have one."""


def sent(rule: Whole, side: Definitions, combine: Combine, wide: DType) -> list[SentPart] | None:
    """The updates of an assembly, each with its place and condition, if one function combines all in a dtype, and no data says their places; else ``None``."""
    first, *others = (side.definitions.get(name) for name in rule.parts)
    found: list[SentPart] = []
    for d, place, condition in zip(others, rule.places[1:], rule.conditions[1:], strict=True):
        match d:
            case Definition(rule=Send(values=(), combine=by), dtype=dtype) if by is combine and dtype is wide:
                found.append((d, place, condition))
            case _:
                return None
    is_whole = first is not None and rule.conditions[0] is TRUE and rule.places[0] == tuple(sym(f"i{k}") for k in range(len(first.shape)))
    return found if found and is_whole else None


def sent_terms(side: Definitions, updates: Sequence[SentPart], index: Sequence[Expr], symbol: Callable[[], Sym], facts: Facts) -> Iterator[SentTerms]:
    """Of each update the points whose place is an index. ``symbol``: makes a new one."""
    for d, place, condition in updates:
        assert isinstance(d.rule, Send)
        extents = {f"i{k}": n for k, n in enumerate(d.shape)}
        at: dict[str, Expr] = {}
        for e, there in zip(place, index, strict=True):
            digits = digits_of(e, there, extents, facts)
            at |= {name: value for name, value in (digits.values if digits is not None else {}).items() if name not in at}
        variables = {name: (symbol(), n) for name, n in extents.items() if name not in at}
        at |= {name: v for name, (v, _) in variables.items()}
        conditions = [eq(substitute(e, at), there) for e, there in zip(place, index, strict=True)]
        conditions += [c for name, n in extents.items() for c in (ge(at[name], 0), lt(at[name], n))]
        yield SentTerms(side.at(d.rule.operand, at), tuple(variables.values()), (*conditions, substitute(condition, at)))

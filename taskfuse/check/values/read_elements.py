"""Elements that no definition reads: statements may write any value to them.

A choice reads a tensor only in the cases whose condition holds. If only choices read a tensor, an element at which all these conditions fail is never
read, and lowering need not compute it; nor need it compute elements that are read for such elements alone, by elementwise functions and choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from taskfuse.ir.scalar import Expr, Sym, conjuncts, substitute, sym
from taskfuse.kir.operands import Access, Operand
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Iterate, Pick, Reduce, Send, Whole


class ReadElements:
    """For each tensor, the conditions of the elements that definitions read.

    Args:
        outputs: the tensors that are read after the kernel.
    """

    def __init__(self, definitions: Mapping[str, Definition], outputs: Iterable[str]) -> None:
        self._conditions: dict[str, tuple[Expr, ...]] = dict.fromkeys(outputs, ())
        readers: dict[str, set[str]] = {}
        for name, definition in definitions.items():
            for tensor, _ in _reads(definition, ()):
                readers.setdefault(tensor, set()).add(name)
        done = set[str]()
        for name, definition in reversed([*definitions.items()]):
            # readers come behind what they read: if one does not, its conditions are missing yet, and nothing is known
            known = self._conditions.get(name, ()) if readers.get(name, set()) <= done else ()
            for tensor, conditions in _reads(definition, known):
                before = self._conditions.get(tensor)
                self._conditions[tensor] = conditions if before is None else tuple(c for c in before if c in conditions)
            done.add(name)

    def conditions(self, tensor: str, index: Iterable[Expr]) -> tuple[Expr, ...]:
        """Conditions that hold of an element if it is read at all."""
        found = self._conditions.get(tensor, ())
        point = {f"i{k}": e for k, e in enumerate(index)} if found else {}
        return tuple(part for c in found for part in conjuncts(substitute(c, point)))


def _reads(definition: Definition, known: tuple[Expr, ...]) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """The tensors that a definition reads, and conditions over the index of an element without which it does not.

    Args:
        known: conditions over the index of an element of the definition's own tensor, without which nobody reads it.
    """
    everything: tuple[Operand, ...] = ()
    point = {f"i{k}" for k in range(len(definition.space))}
    match definition.rule:
        case Pick(cases=cases):
            yield from ((c.operand.buffer, _of_element(c.operand, (c.cond, *known), point)) for c in cases if isinstance(c.operand, Access))
        case Apply(operands=operands):
            yield from ((o.buffer, _of_element(o, known, point)) for o in operands if isinstance(o, Access))
        case Reduce(operands=operands) | Iterate(operands=operands):
            everything = operands
        case Accumulate(operand=operand):
            everything = (operand,)
        case Find(source=source, values=values):
            everything = (source, *values)
        case Send(operand=operand, values=values):
            everything = (operand, *values)
        case Whole(parts=parts):
            yield from ((part, ()) for part in parts)
    yield from ((o.buffer, ()) for o in everything if isinstance(o, Access))


def _of_element(access: Access, conditions: Iterable[Expr], point: AbstractSet[str]) -> tuple[Expr, ...]:
    """The conjuncts of conditions on a point that the index of an access at that point says, in terms of the index."""
    axes = {e.name: sym(f"i{k}") for k, e in enumerate(access.index) if isinstance(e, Sym)}
    return tuple(substitute(c, axes) for condition in conditions for c in conjuncts(condition) if c.free & point <= axes.keys())

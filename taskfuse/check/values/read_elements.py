"""Elements that no definition reads: nothing is asked of what statements write in their place.

A choice reads a tensor in those of its cases whose condition holds. Where only choices read it, an element at which every such condition fails is read
by nobody: lowering need not sum it up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from taskfuse.ir.scalar import Expr, Sym, conjuncts, substitute, sym
from taskfuse.kir.operands import Access, Operand
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Iterate, Pick, Reduce, Send, Whole


class ReadElements:
    """Of each tensor, what holds of every element that a definition reads.

    Args:
        outputs: the tensors that are read when the kernel is over.
    """

    def __init__(self, definitions: Mapping[str, Definition], outputs: Iterable[str]) -> None:
        self._conditions: dict[str, tuple[Expr, ...]] = dict.fromkeys(outputs, ())
        for definition in definitions.values():
            for tensor, conditions in _reads(definition):
                before = self._conditions.get(tensor)
                self._conditions[tensor] = conditions if before is None else tuple(c for c in before if c in conditions)

    def conditions(self, tensor: str, index: Iterable[Expr]) -> tuple[Expr, ...]:
        """Conditions that hold of an element if it is read at all."""
        found = self._conditions.get(tensor, ())
        point = {f"i{k}": e for k, e in enumerate(index)} if found else {}
        return tuple(part for c in found for part in conjuncts(substitute(c, point)))


def _reads(definition: Definition) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """The tensors that a definition reads, and conditions over the index of an element without which it does not."""
    everything: tuple[Operand, ...] = ()
    match definition.rule:
        case Pick(cases=cases):
            point = {f"i{k}" for k in range(len(definition.space))}
            yield from ((c.operand.buffer, _of_element(c.operand, c.cond, point)) for c in cases if isinstance(c.operand, Access))
        case Apply(operands=operands) | Reduce(operands=operands) | Iterate(operands=operands):
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


def _of_element(access: Access, condition: Expr, point: AbstractSet[str]) -> tuple[Expr, ...]:
    """The conjuncts of a condition on a point that the index of an access at that point says, in terms of the index."""
    axes = {e.name: sym(f"i{k}") for k, e in enumerate(access.index) if isinstance(e, Sym)}
    return tuple(substitute(c, axes) for c in conjuncts(condition) if c.free & point <= axes.keys())

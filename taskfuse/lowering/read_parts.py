"""Parts of tiles that nobody reads: a warpgroup does not multiply for rows that do not exist.

Tiles are as large as tensor cores need to be busy, and several warpgroups share one by rows. The last tile of a ragged group, or of a padded one, often ends
inside the rows of one warpgroup. The loop over the terms of a tile runs if any of its rows is read (:mod:`taskfuse.lowering.neutral_tails`), since all
warpgroups wait for the same slots. A warpgroup whose own rows have no reader waits and releases like the others, and issues no products: the tensor cores
work for the others alone. What passes on its accumulators, which have no values then, runs under the same condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from taskfuse.ir.axes import Axis
from taskfuse.ir.scalar import ONE, Compare, CompareOp, Expr, Facts, Sum, bounds, conjuncts, const, integers_of, le, lt, prove, simplify, substitute, sym


@dataclass(frozen=True, slots=True)
class ReadPart:
    """Where elements of a tensor are read.

    Attributes:
        condition: over ``i0``, ``i1``, ...: indices of its axes, those of ``axes``.
        axes: the axes, without reduced ones.
        launch: symbols that have one value in a launch.
        around: those of blocks, and of loops around the code.
        own: thread indices that all threads of an instruction have in common.
        is_chosen: a choice reads it, which runs for all parts: where no part is read, it has the initial value.
    """

    condition: Expr
    axes: tuple[Axis, ...]
    launch: frozenset[str]
    around: frozenset[str]
    own: frozenset[str]
    is_chosen: bool = False

    def at(self, values: Mapping[Axis, Expr], facts: Facts) -> tuple[Expr, ...]:
        """Conditions on these symbols alone without which no element of the part of a warp, or a warpgroup, is read.

        Only those that depend on the part, and on the tile: the proof takes the others for sets of threads, which it does not know if data decides them.

        Args:
            values: the indices around code of the tensor.
            facts: about the symbols in them.
        """
        ends: dict[str, tuple[Expr, Expr]] = {}
        for k, a in enumerate(self.axes):
            span = self._span(simplify(values[a], facts), facts) if a in values else None
            if span is None:
                return ()
            ends[f"i{k}"] = span
        found = (_somewhere(part, ends, facts) for part in conjuncts(self.condition))
        return tuple(c for c in found if c is not None and self._is_of_part(integers_of(c)) and not prove(c, facts))

    def _is_of_part(self, names: frozenset[str]) -> bool:
        return not self.own.isdisjoint(names) and not self.around.isdisjoint(names)

    def _span(self, value: Expr, facts: Facts) -> tuple[Expr, Expr] | None:
        """The least and the greatest value of an index, as functions of these symbols."""
        outer = self.launch | self.around | self.own
        terms, constant = (value.terms, value.const) if isinstance(value, Sum) else (((value, 1),), 0)
        common, rest = const(constant), const(0)
        for term, weight in terms:
            if integers_of(term) <= outer:
                common = common + term * weight
            else:
                rest = rest + term * weight
        low, high = bounds(rest, facts)
        return None if low is None or high is None else (common + low, common + high)


def _somewhere(condition: Expr, ends: Mapping[str, tuple[Expr, Expr]], facts: Facts) -> Expr | None:
    """A comparison at the indices at which it is easiest to satisfy; ``None``: it is none, or not monotone in them."""
    if not isinstance(condition, Compare) or condition.op not in (CompareOp.LT, CompareOp.LE):
        return None
    room, at = condition.b - condition.a, dict[str, Expr]()
    for name, (low, high) in ends.items():
        at[name] = low
        if low is not high and name in room.free:
            step = simplify(substitute(room, {name: sym(name) + ONE}) - room, facts)
            rises = prove(le(0, step), facts)
            if not rises and not prove(le(step, 0), facts):
                return None
            at[name] = high if rises else low
    room = simplify(substitute(room, at), facts)
    return lt(0, room) if condition.op is CompareOp.LT else le(0, room)

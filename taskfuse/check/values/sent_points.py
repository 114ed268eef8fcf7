"""Tensors that points are sent to, in a run: the points that each element has been combined with since it was stored.

Where an update goes is data, so a point counts, with the value, in every element that it is sent to for one of the values that are tried.
The cells hold the elements of the part that is stored. A read finds such an element if nothing has been sent to it, the tensor's own element if each of its
points has been, once, and a wrong term otherwise. As in :mod:`taskfuse.check.values.partials`, sets of points are compared by the sums of fixed random
numbers, modulo 2**64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.drawn_launches import drawn_values
from taskfuse.check.values.elements import Elements, Tensor, value
from taskfuse.check.values.terms import Bools, Ints, Terms
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.witness import Send, Whole

Words = NDArray[np.uint64]
MOST = 128
"""The most tried values of the integers of one point."""
NOWHERE = -1
"""The target of an update that does nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class SentRound:
    """The points that some threads send by one execution of a statement.

    Attributes:
        points: the offset in ``part`` of the point of each thread; ``where``: its target elements, ``[threads, values]``.
        wrong: why a sent value is not a point, by its position; empty if it is.
    """

    part: str
    points: Ints
    where: Ints
    threads: Ints
    stmt: Stmt
    role: str
    wrong: dict[int, str]


class SentPoints:
    """The points sent to one tensor.

    Attributes:
        rule: the parts of the tensor.
        base: the term of each of its elements when stored, flat.
    """

    def __init__(self, tensor: Tensor, rule: Whole, elements: Elements) -> None:
        self.tensor = tensor
        self.rule = rule
        self.base = elements.stored(tensor, rule)
        self._elements = elements
        self._rng = np.random.default_rng((21, tensor.number))
        self._words = {p: self._rng.integers(0, 2**64, elements.tensors[p].size, np.uint64) for p in rule.parts if elements.tensors[p].is_sent}
        self._of_values: Words = self._rng.integers(0, 2**64, max(MOST, tensor.size), np.uint64) | np.uint64(1)
        self._sums: Words = np.zeros(tensor.size, np.uint64)
        self._since: Ints = np.zeros(tensor.size, np.int64)
        self._rounds: list[SentRound] = []

    def store(self, places: Ints) -> None:
        """Elements are stored, before any point is sent to them."""
        self._sums[places] = 0
        self._since[places] = len(self._rounds)

    def send(self, sent: SentRound) -> None:
        """Points are sent."""
        self._rounds.append(sent)
        words = self._words[sent.part][sent.points] if sent.part in self._words else np.zeros(len(sent.points), np.uint64)
        for k in sent.wrong:
            words[k] = self._rng.integers(0, 2**64, dtype=np.uint64)
        self._add(self._sums, words, sent.where)

    def _add(self, sums: Words, words: Words, where: Ints) -> None:
        """Points, by their numbers, are added to the sums of the elements that they go to."""
        there = where != NOWHERE
        pairs: Words = words[:, None] * self._of_values[None, : where.shape[1]]
        np.add.at(sums, where[there], pairs[there])

    @cached_property
    def reach(self) -> dict[str, Ints]:
        """The elements that the points of each part are sent to, ``[points, values]``."""
        found: dict[str, Ints] = {}
        for name in self._words:
            part = self._elements.tensors[name]
            assert part.definition is not None
            assert isinstance(part.definition.rule, Send)
            tried = self.values(part.definition.rule)
            rows = np.repeat(np.arange(part.size), len(tried))
            points = {n: v if n in self._elements.symbols else np.asarray(v)[rows] for n, v in self._elements.points(part.extents).items()}
            points |= {f"v{k}": np.tile(column, part.size) for k, column in enumerate(tried.T)}
            which = self.rule.parts.index(name)
            places, inside = self._elements.place(self.tensor, self.rule.places[which], points, len(rows))
            inside = inside & np.asarray(value(self.rule.conditions[which], points), np.bool_)
            found[name] = np.where(inside, places, NOWHERE).reshape(part.size, len(tried))
        return found

    @cached_property
    def _complete(self) -> Words:
        """The sum of each element when each of its points has been sent, once."""
        sums: Words = np.zeros(self.tensor.size, np.uint64)
        for name, where in self.reach.items():
            self._add(sums, self._words[name], where)
        return sums

    def values(self, rule: Send) -> Ints:
        """The values of the integers of a part that are tried, in rows."""
        return drawn_values([int(value(e, self._elements.symbols)) for e in rule.extents])

    def seen(self, held: Terms, places: Ints, right: Bools, name: str) -> tuple[Terms, Bools]:
        """The terms that a read of elements finds, and a mask of those that are the element of no tensor.

        Args:
            held: the terms of their cells; ``places``: their row-major offsets.
            right: a mask of the terms that are those of the stored part.
            name: the array that is read: the tensor's, or that of the input into which it is written.
        """
        sums = self._sums[places]
        none = (sums == 0) & ((self._complete[places] != 0) | (not self._rounds))
        if name != self.tensor.name:
            return held, ~none
        done = right & ~none & (sums == self._complete[places])
        own = self._elements.at(self.tensor, places)
        return Terms(np.where(done, own.tag, held.tag), np.where(done, own.data, held.data)), right & ~none & ~done

    def difference(self, place: int) -> tuple[str, tuple[tuple[int, Stmt, str], ...]]:
        """The error in the points sent to an element, and the threads that sent them with their statements and roles; empty if the points are right."""
        who: dict[tuple[str, int, int], list[tuple[int, Stmt, str]]] = {}
        for sent in self._rounds[int(self._since[place]) :]:
            for k, column in np.argwhere(sent.where == place).tolist():
                mine = int(sent.threads[k]), sent.stmt, sent.role
                if k in sent.wrong:
                    return sent.wrong[k], (mine,)
                who.setdefault((sent.part, int(sent.points[k]), column), []).append(mine)
        want = {(name, point, column) for name, where in self.reach.items() for point, column in np.argwhere(where == place).tolist()}
        for (part, point, column), times in who.items():
            if (part, point, column) not in want:
                return f"is combined with {self._point(part, point)}, which is sent elsewhere", (times[0],)
            if len(times) > 1:
                return f"is combined with {self._point(part, point)} twice", (times[0], times[1])
        missing = sorted({pair[:2] for pair in want - who.keys()})
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return (f"is never combined with {self._point(*missing[0])}{more}", ()) if missing else ("", ())

    def _point(self, part: str, place: int) -> str:
        extents = self._elements.tensors[part].extents
        return f"{part}[{', '.join(str(int(i)) for i in np.unravel_index(place, extents))}]"

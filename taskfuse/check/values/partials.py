"""Partial results of reductions and scans: which points of the iteration space have been combined, each how often.

A partial result is a node: a *leaf* (the points that one execution of a statement adds), or a *join* of two others. Every node has the sum, modulo 2**64,
of fixed random numbers of its points (products of one odd number for each axis), so that whether a result is complete is one comparison with the
sum over its element's points. A wrong one has the right sum by accident with a probability below 2**-50. Which points it has, to say so, is
found by walking the nodes. A node of a sum that is rescaled also has the last index whose factor it was multiplied by: it takes terms at that index alone, is
joined with such nodes, and is multiplied by the factor at the next one. An initial value that is not neutral is a point of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.flags import all_of, any_of
from taskfuse.check.values.elements import MOVES, Elements, Symbols, Tensor, row_major, value
from taskfuse.check.values.neutral_terms import is_signed_zero
from taskfuse.check.values.terms import NOTHING, PART, Bools, Ints, Terms, constant, constant_tag, constants, converted, numbers, tensor_tag
from taskfuse.dtypes import DType
from taskfuse.ir.combine import Combine
from taskfuse.ir.scalar import ZERO, Expr, Sym
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.operands import Access, Operand
from taskfuse.kir.witness import Accumulate, Apply, Iterate, Pick, Reduce

Words = NDArray[np.uint64]
INITIAL = -1
"""The point that represents an initial value."""


@dataclass(slots=True, eq=False)
class Leaves:
    """The points that one execution of a statement adds.

    Attributes:
        threads: the threads that add them, ``each`` leaves one after the other.
        points: the offsets of one leaf's points in the iteration space.
    """

    stmt: Stmt | None
    threads: Ints
    points: Callable[[int], list[int]]
    each: int = 1


class Accumulation:
    """A reduction, a scan or a fold at given extents.

    Attributes:
        part, body: the tags of its partial results, and of single terms.
        start: the number of an initial value that is not neutral.
    """

    def __init__(self, elements: Elements, tensor: Tensor, rule: Reduce | Accumulate | Iterate) -> None:
        self.elements = elements
        self.tensor = tensor
        self.rule = rule
        self.combine: Combine | None = None if isinstance(rule, Iterate) else rule.combine
        self.dtype: DType = rule.dtype
        self.part = tensor_tag(tensor.number, PART)
        self.body = self.part - 1
        rng = np.random.default_rng((20, tensor.number))
        self.words: list[Words] = [rng.integers(0, 2**64, n, np.uint64) | np.uint64(1) for n in tensor.space]
        self.neutral = None if self.combine is None else int(constant(self.combine.neutral(self.dtype), self.dtype).data[0])
        init = None if isinstance(rule, Accumulate) else converted(constant(rule.init.value, rule.init.dtype), self.dtype)
        self.initial = self.neutral if init is None else int(init.data[0])
        self.is_signed_zero = isinstance(rule, Reduce) and is_signed_zero(rule)
        self.start = np.uint64(0) if self.initial == self.neutral else np.uint64(rng.integers(0, 2**64, dtype=np.uint64))

    @property
    def rescaled(self) -> int | None:
        """The axis along which the sum is rescaled."""
        return self.rule.rescaled if isinstance(self.rule, Reduce) else None

    def steps(self, points: Ints) -> Ints:
        """The indices of points along that axis."""
        assert self.rescaled is not None
        return points // prod(self.tensor.space[self.rescaled + 1 :]) % self.tensor.space[self.rescaled]

    @property
    def is_idempotent(self) -> bool:
        """True if a point may be combined any number of times."""
        return self.combine is not None and self.combine.idempotent

    def absorbs(self, data: Ints) -> Bools:
        """The constants of its dtype that do not change the initial value: it may be combined with them any number of times.

        Equal numbers with other bits (two zeros) are excluded.
        """
        if self.combine is None or not self.is_idempotent:
            return np.zeros(data.shape, np.bool_)
        given, initial = numbers(data, self.dtype), numbers(np.full(data.shape, self.initial), self.dtype)
        with np.errstate(all="ignore"):
            made = np.asarray(self.combine.op.function(given, initial))
        return (given != initial) & (constants(made, self.dtype).data == self.initial)

    @cached_property
    def outside(self) -> Bools | None:
        """The points of the iteration space before the starts and past the ends of the definition's terms; ``None`` if there are none."""
        if not isinstance(self.rule, Reduce) or not (self.rule.starts or self.rule.ends):
            return None
        points, count = self.elements.points(self.tensor.space), prod(self.tensor.space)
        found = [points[f"i{k}"] < value(e, points) for k, e in self.rule.starts]
        found += [points[f"i{k}"] >= value(e, points) for k, e in self.rule.ends]
        return np.logical_or.reduce([np.broadcast_to(f, count) for f in found])

    @cached_property
    def last(self) -> Ints:
        """For a rescaled sum, the index of the last factor of each element."""
        assert self.rescaled is not None
        places, inside = self.places
        inside = inside if self.outside is None else inside & ~self.outside
        found = np.full(self.tensor.size, -1, np.int64)
        np.maximum.at(found, places[inside], self.steps(np.flatnonzero(inside)))
        return found

    @cached_property
    def first(self) -> Ints:
        """For a rescaled sum, the index of the first factor of each element."""
        assert isinstance(self.rule, Reduce)
        assert self.tensor.definition is not None
        start = next((e for k, e in self.rule.starts if k == self.rescaled), ZERO)
        found = np.broadcast_to(value(start, self.elements.points(self.tensor.space)), prod(self.tensor.space))
        places, inside = self.places
        firsts = np.zeros(self.tensor.size, np.int64)
        firsts[places[inside]] = np.maximum(found[inside], 0)
        return firsts

    @cached_property
    def without(self) -> Bools | None:
        """The points of the iteration space that need not be visited: they have no terms, or neutral ones by definition. ``None``: none are known."""
        neutral, outside = self._neutral, self.outside
        return neutral if outside is None else outside if neutral is None else neutral | outside

    @cached_property
    def _neutral(self) -> Bools | None:
        rule = self.rule
        if not isinstance(rule, Reduce) or rule.body.name not in ("copy", "cast", "mul") or (rule.body.name == "mul" and self.neutral != 0):
            return None
        if self.is_signed_zero:
            return None
        if not all(map(self._is_chosen, rule.terms)):
            return None
        points, count = self.elements.points(self.tensor.space), prod(self.tensor.space)
        terms = [converted(self._with_constants(o, points, count), self.dtype) for o in rule.terms]
        found = np.logical_and.reduce([(t.tag == constant_tag(self.dtype)) & (t.data == self.neutral) for t in terms])
        return found if any_of(found) else None

    def _is_chosen(self, operand: Operand) -> bool:
        """True for an element that is chosen by its index, or a copy of one."""
        definition = self.elements.tensors[operand.buffer].definition if isinstance(operand, Access) else None
        match None if definition is None else definition.rule:
            case Pick():
                return True
            case Apply(op=op, operands=(inner,)) if op in MOVES:
                return self._is_chosen(inner)
            case _:
                return False

    def _with_constants(self, operand: Operand, at: Symbols, count: int) -> Terms:
        """The terms of an operand that is chosen, at ``count`` points. A constant is converted by each copy of it: to the others a converted element is new."""
        assert isinstance(operand, Access)
        tensor = self.elements.tensors[operand.buffer]
        match None if tensor.definition is None else tensor.definition.rule:
            case Apply(operands=(inner,), dtype=dtype):
                source = self._with_constants(inner, self.elements.points(tensor.extents), tensor.size)
                places, inside = self.elements.place(tensor, operand.index, at, count)
                found = converted(converted(source, dtype), tensor.dtype)[places] if tensor.size else Terms.full((count,), NOTHING)
                return found if all_of(inside) else Terms(np.where(inside, found.tag, NOTHING), np.where(inside, found.data, 0))
            case _:
                return self.elements.operand(operand, at, count)

    def hashes(self, points: Ints) -> Words:
        """The hashes of points, given by their offsets; 0 for those that may be omitted."""
        found = self._numbers(points)
        return found if self.without is None else np.where(self.without[points], np.uint64(0), found)

    def _numbers(self, points: Ints) -> Words:
        found = np.ones(points.shape, np.uint64)
        for words, n in zip(reversed(self.words), reversed(self.tensor.space), strict=True):
            found *= words[points % n]
            points = points // n
        return found

    @cached_property
    def complete(self) -> Words:
        """The sum of hashes of each element, flat."""
        t = self.tensor
        assert t.definition is not None
        if isinstance(self.rule, Accumulate):
            return self._up_to(self.rule.axis, itself=not self.rule.is_exclusive, start=self.rule.start)
        names = [e.name if isinstance(e, Sym) else "" for e in t.definition.place]
        axes = [int(n[1:]) for n in names if n.startswith("i")]
        if len(axes) == len(names) == len(set(axes)) and tuple(t.space[k] for k in axes) == tuple(t.extents) and self.without is None:
            total = self._product([self.words[k] for k in axes])
            for k, words in enumerate(self.words):
                if k not in axes:
                    total = total * words.sum(dtype=np.uint64)
        else:
            total = np.zeros(t.size, np.uint64)
            numbers = self._product(self.words)
            numbers = numbers if self.without is None else np.where(self.without, np.uint64(0), numbers)
            places, inside = self.places
            np.add.at(total, places[inside], numbers[inside])
        return total + self.start

    def _up_to(self, axis: int, *, itself: bool, start: Expr = ZERO) -> Words:
        """The sum of all points from a start up to each one along an axis, or before it, in a row."""
        numbers = self._product(self.words)
        if start is not ZERO:
            points = self.elements.points(self.tensor.space)
            numbers = np.where(points[f"i{axis}"] >= value(start, points), numbers, np.uint64(0))
        numbers = numbers.reshape(self.tensor.space)
        totals = np.cumsum(numbers, axis=axis, dtype=np.uint64)
        return (totals if itself else totals - numbers).reshape(-1)

    @cached_property
    def before(self) -> Words:
        """For a fold: the sum of hashes of the state to which each point's step is applied."""
        assert isinstance(self.rule, Iterate)
        return self._up_to(self.rule.axis, itself=False) + self.start

    @cached_property
    def places(self) -> tuple[Ints, Bools]:
        """The element that each point of the iteration space belongs to, and whether it exists."""
        t = self.tensor
        assert t.definition is not None
        points = self.elements.points(t.space)
        count = int(np.prod(t.space))
        return row_major([value(e, points) for e in t.definition.place], t.extents, count)

    def domain(self, element: int) -> Counter[int]:
        """The points of an element."""
        if isinstance(self.rule, Accumulate):
            at = np.unravel_index(element, self.tensor.extents)
            axis = self.rule.axis
            start = max(0, int(value(self.rule.start, {**self.elements.symbols, **{f"i{k}": int(i) for k, i in enumerate(at)}})))
            end = int(at[axis]) + (0 if self.rule.is_exclusive else 1)
            found = [int(np.ravel_multi_index((*at[:axis], j, *at[axis + 1 :]), self.tensor.extents)) for j in range(start, end)]
        else:
            places, inside = self.places
            mine = inside & (places == element)
            found = np.flatnonzero(mine if self.without is None else mine & ~self.without).tolist()
        return Counter(found if self.start == 0 else [*found, INITIAL])

    @staticmethod
    def _product(words: list[Words]) -> Words:
        found = np.ones(1, np.uint64)
        for w in words:
            found = (found[:, None] * w[None, :]).reshape(-1)
        return found


class PartialNodes:
    """All nodes of a run, and their folds. Node 0 has no points."""

    def __init__(self, elements: Elements) -> None:
        self.elements = elements
        self.folds: dict[int, Accumulation] = {}
        for t in elements.tensors.values():
            if t.definition is not None and isinstance(t.definition.rule, Reduce | Accumulate | Iterate):
                self.folds[t.number] = Accumulation(elements, t, t.definition.rule)
        self.sums: Words = np.zeros(1024, np.uint64)
        self._steps: Ints = np.full(1024, -1, np.int64)
        self._left: Ints = np.zeros(1024, np.int64)
        self._right: Ints = np.zeros(1024, np.int64)
        self._leaves: list[Leaves] = []
        self._count = 1
        self._starts: dict[int, int] = {}

    def _new(self, sums: Words, left: Any, right: Any, steps: Any = -1) -> Ints:
        first, self._count = self._count, self._count + len(sums)
        if self._count > len(self.sums):
            size = max(self._count, 2 * len(self.sums))
            self.sums = np.concatenate([self.sums, np.zeros(size - len(self.sums), np.uint64)])
            self._left, self._right = (np.concatenate([a, np.zeros(size - len(a), np.int64)]) for a in (self._left, self._right))
            self._steps = np.concatenate([self._steps, np.full(size - len(self._steps), -1)])
        self._steps[first : self._count] = steps
        self.sums[first : self._count], self._left[first : self._count], self._right[first : self._count] = sums, left, right
        return np.arange(first, self._count)

    def leaves(self, sums: Words, leaves: Leaves, steps: Ints | int = -1) -> Ints:
        """New leaves; ``steps``: for a rescaled sum, the index of their points along its axis."""
        self._leaves.append(leaves)
        return self._new(sums, -len(self._leaves), np.arange(len(sums)), steps)

    def joins(self, left: Ints, right: Ints) -> Ints:
        """The joins of pairs of nodes with the same number of rescalings."""
        return self._new(self.sums[left] + self.sums[right], left, right, np.maximum(self._steps[left], self._steps[right]))

    def are_alike(self, fold: Accumulation, left: Ints, right: Ints, *, is_term: bool = False) -> Bools:
        """Which nodes were rescaled up to the same index, so that they may be joined; empty ones may always be, but not with a new term."""
        if fold.rescaled is None:
            return np.ones(left.shape, np.bool_)
        alike = self._steps[left] == self._steps[right]
        return alike if is_term else alike | (left == 0) | (right == 0)

    def rescaled(self, nodes: Ints, steps: Ints, first: Ints) -> tuple[Ints, Bools]:
        """Nodes multiplied by the factor at indices along the axis of a sum; and a mask of those that had the factors of all previous indices.

        Args:
            first: the first index of each, which follows none.
        """
        return self._new(self.sums[nodes], nodes, np.zeros_like(nodes), steps), self._steps[nodes] == np.where(steps == first, -1, steps - 1)

    def start(self, fold: Accumulation) -> int:
        """The node of an initial value."""
        if fold.start == 0:
            return 0
        number = fold.tensor.number
        if number not in self._starts:
            leaf = Leaves(None, np.full(1, -1), lambda _: [INITIAL])
            self._starts[number] = int(self.leaves(np.full(1, fold.start), leaf)[0])
        return self._starts[number]

    def nodes(self, fold: Accumulation, terms: Terms, threads: Ints | None = None, stmt: Stmt | None = None) -> tuple[Ints, Bools]:
        """Terms as partial results of a fold, of its compute dtype: the node of each, and a mask of those that are one. ``threads``: those that execute
        ``stmt``.
        """
        node, known = np.zeros(len(terms), np.int64), terms.tag == fold.part
        node[known] = terms.data[known]
        bodies = terms.tag == fold.body
        if any_of(bodies):
            points = terms.data[bodies]
            who = np.full(len(points), -1) if threads is None else threads[bodies]
            steps = -1 if fold.rescaled is None else fold.steps(points)
            node[bodies] = self.leaves(fold.hashes(points), Leaves(stmt, who, lambda k: [int(points[k])]), steps)
        same = terms.tag == constant_tag(fold.dtype)
        if any_of(same):
            initial = same & (terms.data == fold.initial)
            node[initial] = self.start(fold)
            neutral = same & (((terms.data == fold.neutral) & (fold.neutral is not None and not fold.is_signed_zero)) | fold.absorbs(terms.data))
            node[neutral] = 0
            known = known | initial | neutral
        return node, known | bodies

    def is_complete(self, fold: Accumulation, nodes: Ints, elements: Ints) -> Bools:
        """Which nodes have exactly the points of which elements."""
        found = self.sums[nodes] == fold.complete[elements]
        if fold.rescaled is not None:
            found &= self._steps[nodes] == fold.last[elements]
        if fold.is_idempotent:
            for k in np.flatnonzero(~found).tolist():
                found[k] = {point for point, _, _ in self.origins(fold, int(nodes[k]))} == fold.domain(int(elements[k])).keys()
        return found

    def origins(self, fold: Accumulation, node: int) -> list[tuple[int, int, Stmt | None]]:
        """Each point of a node of a fold, the thread that added it, and its statement, without points that may be omitted."""
        found = self._origins(node)
        without = fold.without
        return found if without is None else [o for o in found if o[0] == INITIAL or not without[o[0]]]

    def _origins(self, node: int) -> list[tuple[int, int, Stmt | None]]:
        found: list[tuple[int, int, Stmt | None]] = []
        stack = [node]
        while stack:
            n = stack.pop()
            if n == 0:
                continue
            left, right = int(self._left[n]), int(self._right[n])
            if left < 0:
                leaves = self._leaves[-left - 1]
                found += [(p, int(leaves.threads[right // leaves.each]), leaves.stmt) for p in leaves.points(right)]
            else:
                stack += (left, right)
        return found

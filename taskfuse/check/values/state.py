"""The state of a run, shared by the effects of all statements: cells, and facts about terms."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from taskfuse.check.flags import any_of
from taskfuse.check.refuted import Refuted, WorkBudget
from taskfuse.check.values.cells import Cells, CellStore
from taskfuse.check.values.elements import Elements
from taskfuse.check.values.lanes import ExecutedLanes, ExecutedLaunch
from taskfuse.check.values.partials import INITIAL, Accumulation, PartialNodes
from taskfuse.check.values.sent_points import SentPoints
from taskfuse.check.values.terms import (
    BODY,
    CONSTANT,
    ELEMENT,
    NOTHING,
    SCALAR,
    TENSORS,
    WRONG,
    Bools,
    Ints,
    Terms,
    constant_dtype,
    constant_tag,
    constants,
    converted,
    is_constant,
    numbers,
)
from taskfuse.dtypes import DTYPES, DType, int64
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Expr
from taskfuse.kir import Kernel, stmt_text
from taskfuse.kir.declarations import TensorMapParam
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.operands import Access, IndexOf, Operand
from taskfuse.kir.witness import Whole

NUMBERS = {d: k for k, d in enumerate(DTYPES.values())}


@dataclass(slots=True, eq=False)
class Reason:
    """Why terms are wrong: those that one execution of a statement made.

    Attributes:
        say: describes one of them; ``detail``: adds lines to the description.
    """

    stmt: Stmt
    role: str
    threads: Ints
    say: Callable[[int], str]
    detail: Callable[[int], tuple[str, ...]] | None = None


@dataclass(slots=True, eq=False)
class Writers:
    """The thread that stored each element of an output, and the number of its statement, counted from 1; 0: none yet.

    What is zero at first takes no memory, and no time, until it is written.
    """

    threads: Ints
    stmts: list[tuple[Stmt, str]]
    which: Ints


class RunState:
    """The state of a run."""

    def __init__(
        self, kernel: Kernel, launch: ExecutedLaunch, elements: Elements, symbols: Mapping[str, int], budget: WorkBudget, entirely: frozenset[str] = frozenset()
    ) -> None:
        self.kernel = kernel
        self.entirely = entirely
        self.launch = launch
        self.elements = elements
        self.budget = budget
        self.partials = PartialNodes(elements)
        self.cells = Cells(kernel, symbols, launch.blocks * launch.per, launch.blocks)
        self.maps = {p.name: p for p in kernel.params if isinstance(p, TensorMapParam)}
        self.writers: dict[str, Writers] = {}
        for p in kernel.outputs:
            size = self.cells.stores[p.name].size
            self.writers[p.name] = Writers(np.zeros(size, np.int64), [], np.zeros(size, np.int64))
        self._overwritten = frozenset(kernel.in_place.values())
        self.sent: dict[str, SentPoints] = {}
        for t in elements.by_number:
            rule = None if t.definition is None else t.definition.rule
            if isinstance(rule, Whole) and t.name in self.cells.stores and any(elements.tensors[p].is_sent for p in rule.parts):
                self.sent[t.name] = SentPoints(t, rule, elements)
        self._arrays = self.sent | {source: self.sent[out] for out, source in kernel.in_place.items() if out in self.sent}
        self._reasons: list[Reason] = []
        self._first: list[int] = []
        self._wrong = 0
        dtypes = [-1, -1, *NUMBERS.values(), -1]
        for t in elements.by_number:
            fold = self.partials.folds.get(t.number)
            wide = -1 if fold is None else NUMBERS[fold.dtype]
            dtypes += [NUMBERS[t.dtype], wide, wide]
        self._dtypes = np.asarray(dtypes, np.int64)
        self._results = np.zeros(len(dtypes), np.bool_)
        for fold in self.partials.folds.values():
            self._results[fold.tensor.element] = fold.dtype is fold.tensor.dtype
        self._scalars = np.asarray([NUMBERS[d] for _, d in elements.scalars.values()] or [0], np.int64)

    # -- cells --------------------------------------------------------------------------------------------------------------------------

    def places(self, access: Access, lanes: ExecutedLanes, width: int = 1) -> Ints:
        """The row-major offset of the first of ``width`` elements, for each thread. Raises :class:`Refuted` outside the buffer."""
        store = self.cells.stores[access.buffer]
        place = np.zeros(len(lanes), np.int64)
        for axis, (e, extent) in enumerate(zip(access.index, store.extents, strict=True)):
            at = lanes.value(e)
            last = at + (width - 1 if axis == len(store.extents) - 1 else 0)
            if isinstance(at, int) and isinstance(last, int):
                outside, which = at < 0 or last >= extent, 0
            else:
                bad = (at < np.int64(0)) | (last >= np.int64(extent))
                outside, which = any_of(bad), int(np.argmax(bad))
            if outside:
                number = at if isinstance(at, int) else int(at[which])
                shown = number if number < 0 else number + width - 1 if axis == len(store.extents) - 1 else number
                raise Refuted(access.buffer, f"index {shown} of axis {axis} is outside 0..{extent}", self.launch.thread(int(lanes.ids[which])))
            place = place * extent + at
        return place

    def owners(self, store: CellStore, lanes: ExecutedLanes) -> Ints:
        """The owner of each thread's copy of a buffer."""
        medium = MEDIA[store.memory]
        return lanes.ids if medium.is_private else self.launch.clusters[lanes.blocks] if medium.is_by_rank else lanes.blocks

    def read(self, access: Access, lanes: ExecutedLanes, stmt: Stmt) -> Terms:
        """The term of an element, for each thread."""
        store = self.cells.stores[access.buffer]
        return self.fetch(store, self.owners(store, lanes), self.places(access, lanes), stmt, lanes.ids, lanes.role)

    def read_wide(self, access: Access, lanes: ExecutedLanes, width: int, stmt: Stmt) -> Terms:
        """The terms of consecutive elements: ``[threads, width]``."""
        store = self.cells.stores[access.buffer]
        places = self.places(access, lanes, width)[:, None] + np.arange(width)
        return self.fetch(store, self.owners(store, lanes)[:, None], places, stmt, lanes.ids, lanes.role)

    def fetch(self, store: CellStore, owners: Ints, places: Ints, stmt: Stmt, threads: Ints, role: str) -> Terms:
        """The terms of elements at row-major offsets. ``threads``: those that read them, along the first axis."""
        self.budget.spend(places.size // 8)
        if store.region is None:
            return self.elements.at(self.elements.tensors[store.name], places)
        found = self._given(store, places, self.taken(store, Cells.cells(store, owners, places), stmt, threads, role))
        return self._complete(store, places, found, stmt, threads, role) if store.name in self._arrays else found

    def _given(self, store: CellStore, places: Ints, found: Terms) -> Terms:
        """The terms of cells; of those of an input that nothing has been written to yet, the input's elements."""
        if store.name not in self._overwritten:
            return found
        given = self.elements.at(self.elements.tensors[store.name], places)
        still = found.tag == NOTHING
        return Terms(np.where(still, given.tag, found.tag), np.where(still, given.data, found.data))

    def _complete(self, store: CellStore, places: Ints, held: Terms, stmt: Stmt, threads: Ints, role: str) -> Terms:
        """The terms of an array that points are sent to; wrong ones if some, and not all of them, have been."""
        sent = self._arrays[store.name]
        right = self.same(held.flat(), sent.base[places.reshape(-1)], store.dtype).reshape(places.shape)
        found, bad = sent.seen(held, places, right, store.name)
        if not any_of(bad):
            return found
        who = np.broadcast_to(threads.reshape(-1, *(1 for _ in range(bad.ndim - 1))), bad.shape)[bad]
        at = places[bad]
        found = found.copy()
        found[bad] = self.wrong(stmt, role, who, lambda k: f"reads {store.name}{self.index(int(at[k]), store.extents)}, which {sent.difference(int(at[k]))[0]}")
        return found

    def taken(self, store: CellStore, cells: Ints, stmt: Stmt, threads: Ints, role: str) -> Terms:
        """The terms of elements by their first cells."""
        found, whole = Cells.read(store, cells)
        return found if whole is None else self._whole(store, found, whole, stmt, threads, role)

    def _whole(self, store: CellStore, found: Terms, whole: Bools, stmt: Stmt, threads: Ints, role: str) -> Terms:
        """Terms of cells that buffers share: those that are not elements of this one are wrong."""
        bad = ~whole | (self.dtype_numbers(found) != NUMBERS[store.dtype]) & (found.tag > WRONG)
        if any_of(bad):
            who = np.broadcast_to(threads.reshape(-1, *(1 for _ in range(found.tag.ndim - 1))), found.tag.shape)[bad]
            held = found[bad]

            def say(k: int) -> str:
                return f"reads an element of {store.name}, where data of another buffer lie: {self.text(held[k : k + 1])}"

            found[bad] = self.wrong(stmt, role, who, say)
        return found

    def write(self, access: Access, lanes: ExecutedLanes, terms: Terms, stmt: Stmt) -> None:
        """Write an element of each thread."""
        store = self.cells.stores[access.buffer]
        self.put(store, self.owners(store, lanes), self.places(access, lanes), terms, stmt, lanes.ids, lanes.role)

    def write_wide(self, access: Access, lanes: ExecutedLanes, terms: Terms, stmt: Stmt) -> None:
        """Write consecutive elements of each thread: ``[threads, width]``."""
        store, width = self.cells.stores[access.buffer], terms.tag.size // max(1, len(lanes))
        places: Ints = self.places(access, lanes, width)[:, None] + np.arange(width)
        owners = np.broadcast_to(self.owners(store, lanes)[:, None], places.shape).reshape(-1)
        self.put(store, owners, places.reshape(-1), terms.flat(), stmt, np.repeat(lanes.ids, width), lanes.role)

    def put(self, store: CellStore, owners: Ints, places: Ints, terms: Terms, stmt: Stmt, threads: Ints, role: str) -> None:
        """Write elements, flat, by their row-major offsets."""
        if store.name in self.writers:
            self._stored(store, places, stmt, threads, role)
        if store.name in self.sent:
            self.sent[store.name].store(places)
        self.place(store, Cells.cells(store, owners, places), terms, stmt, threads, role)

    def place(self, store: CellStore, cells: Ints, terms: Terms, stmt: Stmt, threads: Ints, role: str) -> None:
        """Write elements, flat, by their first cells; each is converted to the dtype of its destination, or wrong."""
        self.budget.spend(len(cells) // 8)
        terms = converted(terms, store.dtype)
        bad = (self.dtype_numbers(terms) != NUMBERS[store.dtype]) & (terms.tag > WRONG)
        if any_of(bad):
            held = terms[bad]
            terms = terms.copy()
            terms[bad] = self.wrong(
                stmt, role, threads[bad], lambda k: f"converts {self.text(held[k : k + 1])} to {store.dtype}, which no tensor is that it may stand for"
            )
        Cells.write(store, cells, terms)

    def _stored(self, store: CellStore, places: Ints, stmt: Stmt, threads: Ints, role: str) -> None:
        """Elements of an output are stored. Raises :class:`Refuted` if two threads store one; a thread may do so again."""
        writers = self.writers[store.name]
        before = writers.threads[places]
        writers.threads[places] = threads
        twice = (writers.which[places] > 0) & (before != threads)
        now = writers.threads[places]
        if any_of(twice):
            k = int(np.argmax(twice))
            first, (other, its) = int(before[k]), writers.stmts[int(writers.which[places[k]]) - 1]
        elif (now != threads).any():
            k = int(np.argmax(now != threads))
            first, other, its = int(now[k]), stmt, role
        else:
            writers.stmts.append((stmt, role))
            writers.which[places] = len(writers.stmts)
            return
        subject = f"{store.name}{self.index(int(places[k]), store.extents)}"
        raise Refuted(subject, "is stored twice", *self.who(int(threads[k]), stmt, role), *self.who(first, other, its))

    # -- terms --------------------------------------------------------------------------------------------------------------------------

    def operand(self, operand: Operand, lanes: ExecutedLanes, stmt: Stmt) -> Terms:
        """The term of an operand, for each thread."""
        if isinstance(operand, Access):
            return self.read(operand, lanes, stmt)
        if isinstance(operand, IndexOf):
            return constants(lanes.values(operand.value), int64)
        return self.elements.leaf(operand, self.launch.symbols, len(lanes))

    def dtype_numbers(self, terms: Terms) -> Ints:
        """The dtype of each term, as its number; -1: none."""
        found = self._dtypes[terms.tag]
        scalars = terms.tag == SCALAR
        if any_of(scalars):
            found[scalars] = self._scalars[terms.data[scalars]]
        return found

    def same(self, held: Terms, expected: Terms, dtype: DType) -> Bools:
        """A mask of the terms, in a row, that equal the expected ones after conversion to a dtype."""
        found = (held.tag == expected.tag) & (held.data == expected.data) & (expected.tag > WRONG)
        rest = ~found
        if not any_of(rest):
            return found
        both = rest & is_constant(held.tag) & is_constant(expected.tag)
        if any_of(both):
            found[both] = converted(held[both], dtype).data == converted(expected[both], dtype).data
        results = rest & self._results[expected.tag]
        while any_of(results):
            tag = int(expected.tag[np.argmax(results)])
            mine = np.flatnonzero(results & (expected.tag == tag))
            fold = self.partials.folds[(tag - TENSORS) // 3]
            nodes, known = self.partials.nodes(fold, held[mine])
            found[mine] = known & self.partials.is_complete(fold, nodes, expected.data[mine])
            results[mine] = False
        return found

    def wrong(self, stmt: Stmt, role: str, threads: Ints, say: Callable[[int], str], detail: Callable[[int], tuple[str, ...]] | None = None) -> Terms:
        """New wrong terms, one for each of the threads; ``say`` describes one of them."""
        first, self._wrong = self._wrong, self._wrong + len(threads)
        self._reasons.append(Reason(stmt, role, threads, say, detail))
        self._first.append(first)
        return Terms(np.full(len(threads), WRONG, np.int64), np.arange(first, self._wrong))

    def reason(self, number: int) -> tuple[str, tuple[str, ...]]:
        """Why a wrong term is wrong, and which thread made it."""
        which = bisect_right(self._first, number) - 1
        reason = self._reasons[which]
        k = number - self._first[which]
        more = () if reason.detail is None else reason.detail(k)
        return reason.say(k), (*self.who(int(reason.threads[k]), reason.stmt, reason.role), *more)

    # -- words --------------------------------------------------------------------------------------------------------------------------

    def who(self, thread: int, stmt: Stmt, role: str) -> tuple[str, ...]:
        """A thread, and its statement."""
        return (f"{self.launch.thread(thread)}{' in ' + role if role else ''}: " + stmt_text(stmt, self.kernel),)

    @staticmethod
    def index(place: int, extents: tuple[int, ...]) -> str:
        """A row-major place as an index."""
        return f"[{', '.join(str(int(i)) for i in np.unravel_index(place, extents))}]" if extents else "[]"

    def text(self, term: Terms) -> str:
        """A term in words."""
        tag, data = int(term.tag.flat[0]), int(term.data.flat[0])
        if tag == NOTHING:
            return "nothing"
        if tag == WRONG:
            return "a wrong value"
        if tag == SCALAR:
            return next(name for name, (k, _) in self.elements.scalars.items() if k == data)
        if CONSTANT <= tag < SCALAR:
            return f"the constant {numbers(term.data.reshape(-1)[:1], constant_dtype(tag))[0]}"
        if tag < TENSORS:
            return "a part of something else"
        number, kind = divmod(tag - TENSORS, 3)
        t = self.elements.by_number[number]
        if kind == ELEMENT:
            return f"element {self.index(data, t.extents)} of {t.name}"
        return f"the term of {t.name} at {self.index(data, t.space)}" if kind == BODY else f"a partial result of {t.name}"

    def difference(self, held: Terms, expected: Terms) -> tuple[str, tuple[str, ...]]:
        """The difference between a term and the expected one: for a partial result its points, and the threads that added them."""
        number, kind = divmod(int(expected.tag.flat[0]) - TENSORS, 3)
        fold = self.partials.folds.get(number) if kind == ELEMENT else None
        if fold is not None and fold.dtype is fold.tensor.dtype:
            nodes, known = self.partials.nodes(fold, held)
            if known[0]:
                return self._points(fold, int(nodes[0]), int(expected.data.flat[0]))
        return f"reads {self.text(held)} where {self.text(expected)} is defined", ()

    def _points(self, fold: Accumulation, node: int, element: int) -> tuple[str, tuple[str, ...]]:
        """The fault of a result: a point that is missing, occurs twice, or belongs to another element."""
        seen: dict[int, list[tuple[int, Stmt | None]]] = {}
        for point, thread, stmt in self.partials.origins(fold, node):
            seen.setdefault(point, []).append((thread, stmt))
        name = f"element {self.index(element, fold.tensor.extents)} of {fold.tensor.name}"
        want = fold.domain(element)

        def shown(point: int) -> str:
            return "its initial value" if point == INITIAL else f"the term at {self.index(point, fold.tensor.space)}"

        def by(point: int) -> tuple[str, ...]:
            return tuple(text for thread, stmt in seen[point][:2] if stmt is not None and thread >= 0 for text in self.who(thread, stmt, ""))

        stray = next((p for p in seen if p not in want), None)
        if stray is not None:
            return f"{name} has {shown(stray)}, which is of another", by(stray)
        missing = [p for p in want if p not in seen]
        if missing:
            return f"{name} lacks {shown(missing[0])}{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}", ()
        point = next((p for p, times in seen.items() if len(times) > 1), None)
        if point is None:  # of a sum that is rescaled: with all terms
            return f"{name} was last rescaled at another index than {fold.last[element]}", ()
        threads = [self.launch.thread(t) for t, _ in seen[point] if t >= 0]
        often = "twice" if len(seen[point]) == 2 else f"{len(seen[point])} times"
        return f"{name} has {shown(point)} {often}{f': by {threads[0]} and {threads[1]}' if len(threads) > 1 else ''}", by(point)

    def fold(self, name: str) -> Accumulation | None:
        """The reduction or scan of that name."""
        return self.partials.folds.get(self.elements.tensors[name].number)

    @staticmethod
    def zero(shape: tuple[int, ...], dtype: DType) -> Terms:
        """Zeros."""
        return Terms.full(shape, constant_tag(dtype))


def points(lanes: ExecutedLanes, index: tuple[Expr, ...]) -> dict[str, int | Ints]:
    """The symbols of the points of an iteration space that an index names, for each thread."""
    return dict(lanes.launch.symbols) | {f"i{k}": lanes.value(e) for k, e in enumerate(index)}

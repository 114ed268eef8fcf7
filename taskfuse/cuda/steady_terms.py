"""Terms of places in what is compared, with ``fast_math``: ``max(c * x + w * j)``, where j is a place, such as that of the element's key or query.

Of a sum of places, ``j = s + u``, iterations of unrolled loops have the steady part s in common, and u is a constant in each. So ``c * x + w * j`` is
``c * (x + (w / c) * u) + w * s``: registers hold the sum ``x + (w / c) * u``, which is one fused multiplication by a constant; maxima get the term ``w * s``
when they are complete, and it is subtracted from what is subtracted from elements. Then elements are multiples, as :mod:`taskfuse.cuda.exponents` wants them.
ALiBi (arXiv:2108.12409) adds such a term to the scores of attention: a slope of each head times the distance of key and query.

The sums are taken in another order, so they differ by rounding. Nobody multiplies places by numbers near the greatest float in order to mask elements, since
products with other places would be infinite. A term that is no multiple of a place may be such a mask: sums with others are left as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from taskfuse.cuda.compared import ComparedElements, touches, without_unread
from taskfuse.dtypes import DType, float32, int32, int64
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import ONE, ZERO, Const, Expr, Sum, const
from taskfuse.kir import Kernel, accesses, bodies, walk, with_bodies
from taskfuse.kir.declarations import Buffer, TensorParam
from taskfuse.kir.nodes import Compute, For, Stmt
from taskfuse.kir.operands import Access, Immediate, IndexOf, Operand
from taskfuse.kir.walk import Body

COPY, CAST, ADD, SUB, NEG, MUL, DIV, FMA = (ELEMENTWISE[name] for name in ("copy", "cast", "add", "sub", "neg", "mul", "div", "fma"))
INTEGERS = int32, int64
Linear = Mapping[tuple[Access | None, float], Expr]
"""A sum: by a number in a register or in memory (``None``: 1) and a constant, the integer that is multiplied by both."""


def apart(kernel: Kernel, name: str, moderate: Collection[str]) -> tuple[Kernel, frozenset[str]]:
    """The kernel with the steady terms of the elements of a buffer of registers added to their maxima, and the registers that hold sums of x and other terms.

    The same kernel, and none, if the elements are no such sums, or are read elsewhere.

    Args:
        moderate: registers of which x may be an element.
    """
    elements = ComparedElements(kernel, name)
    sources = elements.sources() if elements.is_shifted else None
    if not sources or not all(isinstance(s, Compute) for s in sources):
        return kernel, frozenset()
    found = _Apart(kernel, elements, frozenset(map(id, sources)), moderate)
    made = found.changed()
    return (kernel, frozenset()) if made is None else (made, frozenset({found.sum.buffer}))


# -- sums -------------------------------------------------------------------------------------------------------------------------------


def _one(w: Access) -> Linear:
    return {(w, 1.0): ONE}


def _number(a: Linear) -> float | None:
    """The value of a sum that is a constant."""
    if any(w is not None or not isinstance(e, Const) for (w, _), e in a.items()):
        return None
    return sum(k * e.value for (_, k), e in a.items() if isinstance(e, Const))


def _times(a: Linear, k: float) -> Linear:
    return {(w, c * k): e for (w, c), e in a.items()}


def _plus(a: Linear, b: Linear, sign: int) -> Linear:
    keys = dict.fromkeys((*a, *b))
    return {key: e for key in keys if (e := a.get(key, ZERO) + b.get(key, ZERO) * sign) is not ZERO}


def _product(a: Linear, b: Linear) -> Linear | None:
    """The product of a sum and a constant, or of places and one number; ``None``: it is neither."""
    for one, other in ((a, b), (b, a)):
        number = _number(other)
        if number is not None:
            return _times(one, number)
        match tuple(other.items()):
            case [((Access() as w, k), e)] if e is ONE and all(v is None for v, _ in one):
                return {(w, c * k): e for (_, c), e in one.items()}
            case _:
                pass
    return None


@dataclass(slots=True)
class _Values:
    """What the scalars are that a list of statements computes, as sums of what it reads.

    Attributes:
        dtypes: those of buffers and tensors.
        moderate: registers of which each is one term of a sum, whatever computes it.
        written: how often statements of the nest write a buffer; moving: the variables of its unrolled loops.
        known: the scalars.
        steady: those that are the same in all iterations of the nest, and the statements that compute them.
    """

    dtypes: Mapping[str, DType]
    moderate: Collection[str]
    written: Mapping[str, int]
    moving: frozenset[str]
    known: dict[Access, Linear | None] = field(default_factory=dict[Access, "Linear | None"])
    steady: dict[Access, tuple[Compute, ...]] = field(default_factory=dict[Access, tuple[Compute, ...]])

    def add(self, s: Stmt) -> Linear | None:
        """The value that a statement computes; ``None``: it is no such sum."""
        made = self._of(s) if isinstance(s, Compute) else None
        if isinstance(s, Compute) and self._is_steady(s):
            before = [t for o in s.operands if isinstance(o, Access) for t in self.steady.get(o, ())]
            self.steady[s.out] = (*dict.fromkeys(before), s)
            made = _one(s.out) if made is None and self.dtypes.get(s.out.buffer) is float32 else made
        for out in accesses(s)[0]:
            is_term = out.buffer in self.moderate and out not in self.known
            self.known[out] = _one(out) if is_term else made
        return made

    def is_steady(self, w: Access) -> bool:
        """True for what is the same in all iterations."""
        return w in self.steady or (not self.written[w.buffer] and all(e.free.isdisjoint(self.moving) for e in w.index))

    def _is_steady(self, s: Compute) -> bool:
        if s.out.index or self.written[s.out.buffer] != 1 or s.out.buffer in self.moderate:
            return False
        indices = [o.value for o in s.operands if isinstance(o, IndexOf)]
        return all(e.free.isdisjoint(self.moving) for e in indices) and all(self.is_steady(o) for o in s.operands if isinstance(o, Access))

    def _of(self, s: Compute) -> Linear | None:
        out = self.dtypes.get(s.out.buffer)
        if not (s.dtype in INTEGERS and (out in INTEGERS or out is float32)) and not (s.dtype is float32 and out is float32):
            return None
        operands = [self._operand(o) for o in s.operands]
        known = [o for o in operands if o is not None]
        if len(known) < len(operands):
            return None
        match known:
            case [a] if s.op in (COPY, CAST):
                return a
            case [a] if s.op is NEG:
                return _times(a, -1.0)
            case [a, b] if s.op in (ADD, SUB):
                return _plus(a, b, 1 if s.op is ADD else -1)
            case [a, b] if s.op is MUL:
                return _product(a, b)
            case [a, b] if s.op is DIV and s.dtype is float32 and (number := _number(b)):
                return _times(a, 1 / number)
            case [a, b, c] if s.op is FMA and (product := _product(a, b)) is not None:
                return _plus(product, c, 1)
            case _:
                return None

    def _operand(self, o: Operand) -> Linear | None:
        match o:
            case Access():
                return self.known[o] if o in self.known else _one(o) if self.dtypes.get(o.buffer) is float32 else None
            case Immediate(value=value):
                return {(None, float(value)): ONE}
            case IndexOf(value=e):
                return {(None, 1.0): e}
            case _:
                return None


# -- changes ----------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PlaceTerm:
    """``w * k * (steady + moving)``: a place, of which the first part is the same in all iterations of a nest."""

    w: Access | None
    k: float
    steady: Expr
    moving: Expr


@dataclass(slots=True)
class _Apart:
    """The changes for one buffer.

    Attributes:
        sources: the statements that compute elements, by their ``id``.
        moderate: registers of which x may be an element.
        replaced: by the ``id`` of a statement, those in its place; ahead: those before it.
        common: the steady parts of all elements, which are one number; computed: the statements among the sources that compute its factors.
        scalars: what the sources were computed from; slopes: the number of factors of what moves.
        dtypes: those of buffers and tensors.
    """

    kernel: Kernel
    elements: ComparedElements
    sources: frozenset[int]
    moderate: Collection[str]
    replaced: dict[int, Body] = field(default_factory=dict[int, Body])
    ahead: dict[int, Body] = field(default_factory=dict[int, Body])
    common: list[tuple[Access | None, float, Expr]] | None = None
    computed: list[Compute] = field(default_factory=list[Compute])
    scalars: set[str] = field(default_factory=set[str])
    slopes: int = 0
    dtypes: dict[str, DType] = field(default_factory=dict[str, DType])

    def __post_init__(self) -> None:
        self.dtypes |= {b.name: b.dtype for b in self.kernel.buffers} | {p.name: p.dtype for p in self.kernel.params if isinstance(p, TensorParam)}

    def scalar(self, kind: str) -> Access:
        """A register of the buffer's own."""
        return Access(f"{self.elements.name}.{kind}", ())

    @property
    def sum(self) -> Access:
        """x and what moves."""
        return self.scalar("sum")

    def changed(self) -> Kernel | None:
        """The kernel; ``None``: the elements are no such sums."""
        if not self._nests(self.kernel.body, None, frozenset()) or not self.common or not self.sources <= self.replaced.keys() or not self._is_one_number():
            return None
        steady = self.scalar("steady")
        for s in self.elements.readers[self.elements.name]:
            if isinstance(s, Compute) and self.elements.is_difference(s):
                less = self.scalar("less")
                other = next(o for o in s.operands if not isinstance(o, Access) or o.buffer != self.elements.name)
                shifted = Compute(less, SUB, (other, steady), float32)
                self.replaced[id(s)] = shifted, replace(s, operands=tuple(less if o is other else o for o in s.operands))
        memory = next(b.memory for b in self.kernel.buffers if b.name == self.elements.name)
        kinds = ("sum", "place", "steady", "less", *(f"slope{n}" for n in range(self.slopes)))
        buffers = tuple(Buffer(self.scalar(kind).buffer, float32, memory, (), float32.itemsize) for kind in kinds)
        kernel = replace(self.kernel, buffers=(*self.kernel.buffers, *buffers), body=self._body(self.kernel.body))
        body = ComparedElements(kernel, self.elements.name).with_completed(lambda out: Compute(out, ADD, (out, steady), float32))
        return None if body is None else without_unread(replace(kernel, body=body), self.scalars)

    def _nests(self, body: Body, nest: Stmt | None, moving: frozenset[str]) -> bool:
        """Find the sources in statements and those inside. ``nest``: the outermost of the unrolled loops around, whose variables are ``moving``. False if one
        is no such sum."""
        values: _Values | None = None
        for s in body:
            if any(id(t) in self.sources for t in body) and isinstance(s, Compute):
                around = body if nest is None else (nest,)
                values = values or _Values(self.dtypes, self.moderate, Counter(a.buffer for t in walk(around) for a in accesses(t)[0]), moving)
                made = values.add(s)
                if id(s) in self.sources and (made is None or not self._source(s, made, nest or s, values, body)):
                    return False
            match s:
                case For(var=var, start=Const(), stop=Const(), unroll=True):
                    found = self._nests(s.body, nest or s, moving | {var})
                case _:
                    found = all(self._nests(b, None, frozenset()) for b in bodies(s))
            if not found:
                return False
        return True

    def _source(self, s: Compute, made: Linear, nest: Stmt, values: _Values, body: Body) -> bool:
        """Note the changes for a source, if it is a sum with steady terms."""
        elements = [(w, k) for (w, k), e in made.items() if w is not None and w.buffer in self.moderate and e is ONE]
        if len(elements) != 1:
            return False
        ((x, factor),) = elements
        if factor < float(2**-126) or values.written[x.buffer] > 1:
            return False
        terms: list[_PlaceTerm] = []
        for (w, k), e in made.items():
            if (w, k) == (x, factor):
                continue
            parts = _parts(e, values.moving)
            if parts is None or (w is not None and not values.is_steady(w)):
                return False
            terms.append(_PlaceTerm(w, k, *parts))
        if not terms or any(all(isinstance(t.steady + t.moving, Const) for t in terms if t.w == w) for w in {t.w for t in terms}):
            return False
        common = [(t.w, t.k, t.steady) for t in terms if t.steady is not ZERO]
        if self.common is not None and self.common != common:
            return False
        self.common = common
        self.scalars |= {a.buffer for t in body for a in accesses(t)[0] if not a.index}
        self.replaced[id(s)] = tuple(self._sum(s, x, factor, terms))
        computed = tuple(dict.fromkeys(c for t in terms if t.w is not None for c in values.steady.get(t.w, ())))
        self.replaced |= {id(c): () for c in computed}
        self.computed.extend(computed)
        self.ahead[id(nest)] = *computed, *self._ahead(terms, factor)
        return True

    def _sum(self, s: Compute, x: Access, factor: float, terms: list[_PlaceTerm]) -> list[Stmt]:
        """``factor * (x + ..)``."""
        place, total = self.scalar("place"), self.sum
        found: list[Stmt] = [Compute(total, COPY, (x,), float32)]
        for n, t in enumerate(terms):
            if t.moving is not ZERO:
                slope = Immediate(t.k / factor, float32) if t.w is None else self.scalar(f"slope{n}")
                found += [Compute(place, CAST, (IndexOf(t.moving),), int64), Compute(total, FMA, (place, slope, total), float32)]
        return [*found, Compute(s.out, MUL, (total, Immediate(factor, float32)), float32)]

    def _ahead(self, terms: list[_PlaceTerm], factor: float) -> list[Stmt]:
        """The steady number, and the factors of what moves."""
        place, steady = self.scalar("place"), self.scalar("steady")
        found: list[Stmt] = [Compute(steady, COPY, (Immediate(0.0, float32),), float32)]
        for n, t in enumerate(terms):
            if t.steady is not ZERO:
                found += [Compute(place, CAST, (IndexOf(t.steady),), int64), Compute(place, MUL, (place, Immediate(t.k, float32)), float32)]
                found.append(Compute(steady, FMA, (place, Immediate(1.0, float32) if t.w is None else t.w, steady), float32))
            if t.moving is not ZERO and t.w is not None:
                self.slopes = max(self.slopes, n + 1)
                found.append(Compute(self.scalar(f"slope{n}"), MUL, (t.w, Immediate(t.k / factor, float32)), float32))
        return found

    def _is_one_number(self) -> bool:
        """True if the steady number is the same for all elements that the buffer has at a time."""
        name, body = self.elements.name, self.kernel.body
        while True:
            inside = [k for k, s in enumerate(body) if any(touches(t, name) for t in walk(s))]
            within = [b for b in bodies(body[inside[0]]) if any(touches(t, name) for t in walk(b))]
            if len(inside) > 1 or len(within) != 1 or touches(body[inside[0]], name):
                break
            (body,) = within
        loops = {t.var for k in inside for t in walk(body[k]) if isinstance(t, For)}
        written = {a.buffer for s in body[inside[0] :] for t in walk(s) for a in accesses(t)[0]}
        made = {s.out.buffer for s in self.computed}
        read = [o for s in self.computed for o in s.operands if not isinstance(o, Access) or o.buffer not in made]
        read += [o for w, _, e in self.common or () for o in (IndexOf(e), w) if o is not None and (not isinstance(o, Access) or o.buffer not in made)]
        places = [e for o in read for e in ((o.value,) if isinstance(o, IndexOf) else o.index if isinstance(o, Access) else ())]
        return all(e.free.isdisjoint(loops) for e in places) and all(o.buffer not in written for o in read if isinstance(o, Access))

    def _body(self, body: Body) -> Body:
        found: list[Stmt] = []
        for s in body:
            found += self.ahead.get(id(s), ())
            found += self.replaced.get(id(s), (with_bodies(s, tuple(map(self._body, bodies(s)))),))
        return tuple(found)


def _parts(e: Expr, moving: frozenset[str]) -> tuple[Expr, Expr] | None:
    """A sum's terms without, and with, some symbols; ``None``: a term has both kinds of symbols."""
    terms = e.terms if isinstance(e, Sum) else ((e, 1),)
    if any(t.free & moving and not t.free <= moving for t, _ in terms):
        return None
    moves = sum((t * k for t, k in terms if t.free & moving), start=const(0))
    return e - moves, moves

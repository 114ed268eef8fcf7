"""Exponentials of differences of multiples, with ``fast_math``: ``exp(c * x - m)``, where m is often the maximum of all ``c * x``.

As written each x is multiplied by c, compared, shifted by m, multiplied by log2(e), and given to ``ex2``. Two changes leave the comparison, a fused
multiplication, and ``ex2``, as in FlashAttention (arXiv:2205.14135):

1. *Maxima of what is multiplied.* For c > 0, ``max(c * x) == c * max(x)``, also as rounded, since rounding is monotone; so also among infinities, which masks
   put in place of some x. So registers hold x, maxima are multiplied when they are complete, and x where it is shifted, by an instruction that adds, too.
2. *Powers of 2.* ``exp(c * x - m)`` is ``exp2((c * log2(e)) * x - log2(e) * m)``.

The fused multiplication rounds m, and not ``c * x``: where that is the maximum, their difference is not 0, but up to ``2**-24 * |m|``, the same for all x. This
is little for sums of products, and for functions with bounds, which nobody sets to the most negative float in order to mask them: for other x both changes are
left out, as a row of such floats would become infinite.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from taskfuse.dtypes import float32
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import substitute, sym
from taskfuse.kir import Kernel, accesses, bodies, map_stmts, walk, with_bodies
from taskfuse.kir.declarations import Buffer
from taskfuse.kir.nodes import Choose, Compute, For, Stmt
from taskfuse.kir.operands import Access, Immediate, Operand
from taskfuse.kir.products import Mma, Wgmma
from taskfuse.kir.walk import Body

COPY, MUL, SUB, FMA = (ELEMENTWISE[name] for name in ("copy", "mul", "sub", "fma"))
EXTREMES = (ELEMENTWISE["maximum"], ELEMENTWISE["minimum"])
LOG2_E = math.log2(math.e)


def with_fast_exponents(kernel: Kernel) -> Kernel:
    """A kernel with fewer instructions for such exponentials, and results that differ by rounding."""
    moderate = _moderate(kernel)
    if not moderate:
        return kernel
    multiples: set[str] = set()
    compared = {a.buffer for s in walk(kernel) if isinstance(s, Compute) and s.op in EXTREMES for a in accesses(s)[1] if a != s.out}
    for name in (b for b in _registers(kernel) if b in compared):
        unscaled = _Multiples(kernel, name, moderate).unscaled()
        multiples |= {name} if unscaled is not kernel else set()
        kernel = unscaled
    return replace(kernel, body=_as_powers(kernel, moderate | multiples))


def _registers(kernel: Kernel) -> list[str]:
    return [b.name for b in kernel.buffers if b.dtype is float32 and MEDIA[b.memory].is_private]


def _moderate(kernel: Kernel) -> frozenset[str]:
    """Registers of sums of products, and of functions with bounds."""
    found, others = set[str](), set[str]()
    for s in walk(kernel):
        match s:
            case Wgmma(acc=acc) | Mma(acc=acc):
                found.add(acc.buffer)
            case Compute(op=op, out=out) if op.bound is not None:
                found.add(out.buffer)
            case Compute(op=op, out=out, operands=(Immediate(value=value),)) if op is COPY and value == 0:
                pass
            case _:
                others |= {a.buffer for a in accesses(s)[0]}
    return frozenset(found - others).intersection(_registers(kernel))


def _multiple(stmt: Stmt) -> tuple[Access, float] | None:
    """The element that a statement multiplies in float32, and the finite number by which it does; ``None`` for other statements."""
    match stmt:
        case Compute(op=op, operands=(Access() as x, Immediate(value=value)) | (Immediate(value=value), Access() as x), dtype=dtype):
            number = float(value)
            return (x, number) if op is MUL and dtype is float32 and math.isfinite(number) else None
        case _:
            return None


def _is_infinite(operand: Operand) -> bool:
    return isinstance(operand, Immediate) and math.isinf(float(operand.value))


# -- maxima of what is multiplied -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Multiples:
    """A buffer of registers, if all of its elements are multiples by one positive number, or infinite.

    Attributes:
        moderate: registers of sums of products, and of functions with bounds.
        writers, readers: by buffer, the statements that write, and read, it.
        pending: the statements that compare an element with a maximum, by their ``id``: those whose maximum is not yet multiplied.
    """

    kernel: Kernel
    name: str
    moderate: frozenset[str]
    registers: frozenset[str] = frozenset()
    writers: defaultdict[str, list[Stmt]] = field(default_factory=lambda: defaultdict[str, list[Stmt]](list))
    readers: defaultdict[str, list[Stmt]] = field(default_factory=lambda: defaultdict[str, list[Stmt]](list))
    pending: set[int] = field(default_factory=set[int])

    def unscaled(self) -> Kernel:
        """The kernel with what is multiplied in the buffer; the same kernel if that is not possible."""
        self.registers = frozenset(_registers(self.kernel))
        for s in walk(self.kernel):
            for found, names in zip((self.writers, self.readers), accesses(s), strict=True):
                for buffer in dict.fromkeys(a.buffer for a in names):
                    found[buffer].append(s)
        factor = self._factor()
        if factor is None:
            return self.kernel
        compared = [s for s in self.readers[self.name] if self._is_comparison(s)]
        others = [s for s in self.readers[self.name] if not self._is_comparison(s)]
        if not compared or not all(isinstance(s, Compute) and s.op is SUB and s.dtype is float32 for s in others):
            return self.kernel
        self.pending = set(map(id, compared))
        body = self._multiplied(self.kernel.body, factor)
        if self.pending:
            return self.kernel
        product = f"{self.name}.product"
        sources = {self.name, *(o.buffer for s in self.writers[self.name] if isinstance(s, Choose) for o in _operands(s))}

        def one(s: Stmt) -> Stmt | Body:
            made = _multiple(s)
            if isinstance(s, Compute) and made is not None and s.out.buffer in sources:
                return replace(s, op=COPY, operands=(made[0],))
            if isinstance(s, Compute) and s.op is SUB and any(isinstance(o, Access) and o.buffer == self.name for o in s.operands):
                return self._products(s, product, factor)
            return s

        buffer = Buffer(product, float32, next(b.memory for b in self.kernel.buffers if b.name == self.name), (), float32.itemsize)
        return replace(self.kernel, buffers=(*self.kernel.buffers, buffer), body=map_stmts(body, one))

    def _factor(self) -> float | None:
        """The number; ``None``: there is none."""
        found: set[float] = set()
        for s in self.writers[self.name]:
            if isinstance(s, Choose):
                if not all(_is_infinite(c.operand) or isinstance(c.operand, Access) for c in s.cases):
                    return None
                made = [w for o in _operands(s) for w in self.writers[o.buffer]]
                if not all(o.buffer in self.registers and not o.index and all(map(self._is_choice, self.readers[o.buffer])) for o in _operands(s)):
                    return None
            else:
                made = [s]
            multiples = [_multiple(w) for w in made]
            found |= {math.nan if m is None or m[0].buffer not in self.moderate else m[1] for m in multiples}
        factor = found.pop() if len(found) == 1 else math.nan
        return factor if float(2**-126) <= factor else None

    def _is_choice(self, s: Stmt) -> bool:
        return isinstance(s, Choose) and s.out.buffer == self.name

    def _is_comparison(self, s: Stmt) -> bool:
        """True for a maximum, or a minimum, of an element and of those before it."""
        match s:
            case Compute(out=out, op=op, operands=(Access() as a, Access() as b), dtype=dtype) if op in EXTREMES and dtype is float32:
                before, element = (a, b) if b.buffer == self.name else (b, a)
                return before == out and element.buffer == self.name and out.buffer in self.registers
            case _:
                return False

    def _multiplied(self, body: Body, factor: float) -> Body:
        """Statements, with the products of maxima behind those that complete them."""
        found: list[Stmt] = []
        for k, s in enumerate(body):
            found.append(with_bodies(s, tuple(self._multiplied(b, factor) for b in bodies(s))))
            mine = [c for c in walk(s) if id(c) in self.pending and isinstance(c, Compute)]
            results = [c.out.buffer for c in mine]
            if mine and len(set(results)) == len(results) and all(self._begins(body[:k], s, name) for name in results):
                found += [_at_each(s, c, factor) for c in mine]
                self.pending.difference_update(map(id, mine))
        return tuple(found)

    def _begins(self, before: Body, s: Stmt, name: str) -> bool:
        """True if a maximum begins with infinity in front of a statement, which does nothing with it but comparisons."""
        if any(_touches(x, name) and id(x) not in self.pending for x in walk(s)):
            return False
        last = next((x for x in reversed(before) if any(_touches(y, name) for y in walk(x))), None)
        first = [] if last is None else [y for y in walk(last) if _touches(y, name)]
        return bool(first) and all(isinstance(y, Compute) and y.op is COPY and _is_infinite(y.operands[0]) for y in first)

    def _products(self, s: Compute, product: str, factor: float) -> Body:
        place = next(o for o in s.operands if isinstance(o, Access) and o.buffer == self.name)
        scalar = Access(product, ())
        made = Compute(scalar, MUL, (place, Immediate(factor, float32)), float32)
        return made, replace(s, operands=tuple(scalar if o == place else o for o in s.operands))


def _operands(s: Choose) -> list[Access]:
    return [c.operand for c in s.cases if isinstance(c.operand, Access)]


def _touches(s: Stmt, name: str) -> bool:
    return any(a.buffer == name for side in accesses(s) for a in side)


def _at_each(nest: Stmt, compared: Compute, factor: float) -> Stmt:
    """The product of each result of a nest of loops."""
    loops = [s for s in walk(nest) if isinstance(s, For) and any(x is compared for x in walk(s)) and any(s.var in e.free for e in compared.out.index)]
    names = {s.var: sym(f"{s.var}.product") for s in loops}
    out = Access(compared.out.buffer, tuple(substitute(e, names) for e in compared.out.index))
    made: Stmt = Compute(out, MUL, (out, Immediate(factor, float32)), float32)
    for s in reversed(loops):
        made = replace(s, var=names[s.var].name, body=(made,))
    return made


# -- powers of 2 ------------------------------------------------------------------------------------------------------------------------


def _as_powers(kernel: Kernel, moderate: Collection[str]) -> Body:
    scalars = {b.name for b in kernel.buffers if b.dtype is float32 and MEDIA[b.memory].is_private and not b.shape}
    reads = [a.buffer for s in walk(kernel) for a in accesses(s)[1]]
    once = {name for name in scalars if reads.count(name) == 1}

    def visit(body: Body) -> Body:
        found: list[Stmt] = []
        for s in body:
            found.append(with_bodies(s, tuple(map(visit, bodies(s)))))
            found[-3:] = _power(found[-3:], once, moderate)
        return tuple(found) if any(a is not b for a, b in zip(found, body, strict=True)) else body

    return visit(kernel.body)


def _power(three: Sequence[Stmt], once: Collection[str], moderate: Collection[str]) -> Sequence[Stmt]:
    """``u = c * x; v = u - m; exp(v)``, where nothing else reads u and v, as a power of 2; other statements as they are."""
    match three:
        case [
            Compute(out=Access(buffer=product)) as first,
            Compute(out=Access(buffer=shifted), op=sub, operands=(Access(buffer=minuend), m), dtype=dtype) as second,
            Compute(op=exp, operands=(Access(buffer=exponent),), dtype=computed) as third,
        ] if product == minuend and shifted == exponent and product in once and shifted in once and sub is SUB and exp is ELEMENTWISE["exp"]:
            made = _multiple(first)
            if made is None or made[0].buffer not in moderate or dtype is not float32 or computed is not float32 or not made[1]:
                return three
            x, c = made
            power = replace(first, operands=(m, Immediate(-LOG2_E, float32)))
            return power, replace(second, op=FMA, operands=(x, Immediate(c * LOG2_E, float32), first.out)), replace(third, op=ELEMENTWISE["exp2"])
        case _:
            return three

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
from collections.abc import Collection, Sequence
from dataclasses import replace

from taskfuse.cuda.compared import ComparedElements, compared, registers
from taskfuse.cuda.steady_terms import apart
from taskfuse.dtypes import float32
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.medium import MEDIA
from taskfuse.kir import Kernel, accesses, bodies, map_stmts, walk, with_bodies
from taskfuse.kir.declarations import Buffer
from taskfuse.kir.nodes import Compute, Stmt
from taskfuse.kir.operands import Access, Immediate
from taskfuse.kir.products import Mma, Wgmma
from taskfuse.kir.walk import Body

COPY, MUL, SUB, FMA = (ELEMENTWISE[name] for name in ("copy", "mul", "sub", "fma"))
LOG2_E = math.log2(math.e)


def with_fast_exponents(kernel: Kernel) -> Kernel:
    """A kernel with fewer instructions for such exponentials, and results that differ by rounding."""
    moderate = set(_moderate(kernel))
    if not moderate:
        return kernel
    multiples: set[str] = set()
    for name in compared(kernel):
        kernel, sums = apart(kernel, name, moderate)
        moderate |= sums
        unscaled = _unscaled(kernel, name, moderate)
        multiples |= {name} if unscaled is not kernel else set()
        kernel = unscaled
    return replace(kernel, body=_as_powers(kernel, moderate | multiples))


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
    return frozenset(found - others).intersection(registers(kernel))


def _multiple(stmt: Stmt) -> tuple[Access, float] | None:
    """The element that a statement multiplies in float32, and the finite number by which it does; ``None`` for other statements."""
    match stmt:
        case Compute(op=op, operands=(Access() as x, Immediate(value=value)) | (Immediate(value=value), Access() as x), dtype=dtype):
            number = float(value)
            return (x, number) if op is MUL and dtype is float32 and math.isfinite(number) else None
        case _:
            return None


# -- maxima of what is multiplied -------------------------------------------------------------------------------------------------------


def _unscaled(kernel: Kernel, name: str, moderate: Collection[str]) -> Kernel:
    """The kernel with what is multiplied in a buffer of registers, if all elements are multiples by one positive number, or infinite; or the same kernel."""
    elements = ComparedElements(kernel, name)
    made = elements.sources()
    if made is None or not elements.is_shifted:
        return kernel
    multiples = [_multiple(s) for s in made]
    found = {math.nan if m is None or m[0].buffer not in moderate else m[1] for m in multiples}
    factor = found.pop() if len(found) == 1 else math.nan
    number = Immediate(factor, float32)
    body = elements.with_completed(lambda out: Compute(out, MUL, (out, number), float32)) if factor >= float(2**-126) else None
    if body is None:
        return kernel
    product = Access(f"{name}.product", ())
    mine = set(map(id, made))

    def one(s: Stmt) -> Stmt | Body:
        if isinstance(s, Compute) and id(s) in mine and (multiple := _multiple(s)) is not None:
            return replace(s, op=COPY, operands=(multiple[0],))
        if isinstance(s, Compute) and elements.is_difference(s):
            place = next(o for o in s.operands if isinstance(o, Access) and o.buffer == name)
            return Compute(product, MUL, (place, number), float32), replace(s, operands=tuple(product if o == place else o for o in s.operands))
        return s

    buffer = Buffer(product.buffer, float32, next(b.memory for b in kernel.buffers if b.name == name), (), float32.itemsize)
    return replace(kernel, buffers=(*kernel.buffers, buffer), body=map_stmts(body, one))


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

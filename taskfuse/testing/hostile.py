"""Hostile kernels: malformed or wrong witnesses, and edited texts. taskfuse must give a verdict on them and never crash.

The rules of kernel IR refuse a malformed witness, and the parser a malformed text; the proof decides on all others. :func:`crash` gives any other exception.
"""

from __future__ import annotations

import random
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from taskfuse.check import verify
from taskfuse.dtypes import DTYPES, float64
from taskfuse.errors import TaskfuseError
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import FALSE, TRUE, Expr, const, sym
from taskfuse.kir import Kernel, held, parse_kernel, walk
from taskfuse.kir.operands import Access, ChoiceCase, Content, Holds, Immediate, IndexOf, Operand, ScalarValue
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Iterate, Pick, Reduce, Rule, Whole
from taskfuse.testing.definition_operators import all_operands
from taskfuse.testing.mutations import at
from taskfuse.testing.value_edits import Writer, with_holds


def crash(kernel: Kernel, extents: Mapping[str, int] | None = None, *, searched: bool = False) -> str | None:
    """The exception of the rules or the proof on a kernel, if it is not an error of taskfuse.

    Args:
        searched: also search for a counterexample.
    """
    return _raised(lambda: _asked(kernel, extents, searched))


def crash_of_text(text: str) -> str | None:
    """The same for the text of a kernel."""
    return _raised(lambda: _asked(parse_kernel(text), None, False))


def _asked(kernel: Kernel, extents: Mapping[str, int] | None, searched: bool) -> None:
    try:
        kernel.check_ir()
    except TaskfuseError:
        assert not verify(kernel).is_proved
        raise
    certificate = verify(kernel, extents)
    assert str(certificate) if searched else [str(o) for o in certificate.argument]


def _raised(ask: Callable[[], None]) -> str | None:
    try:
        ask()
    except TaskfuseError:
        return None
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({where.filename.rpartition('taskfuse/')[2]}, {where.name})"
    return None


# -- witnesses ----------------------------------------------------------------------------------------------------------------------


def hostile_witnesses(kernel: Kernel, chance: random.Random) -> Iterator[Kernel]:
    """Yield endless kernels with changed definitions, or with one changed claim of a statement."""
    stmts = [s for s in walk(kernel) if isinstance(s, Writer)]
    while kernel.definitions and stmts:
        if chance.random() < 0.5:
            yield replace(kernel, definitions=tuple(_definitions([*kernel.definitions], chance)))
        else:
            stmt = chance.choice(stmts)
            yield at(kernel, stmt, with_holds(stmt, _holds(held(stmt), kernel, chance)))


def _definitions(every: list[Definition], chance: random.Random) -> Sequence[Definition]:
    k = chance.randrange(len(every))
    match chance.randrange(8):
        case 0:
            del every[k]
        case 1:
            every.insert(chance.randrange(len(every) + 1), every[k])
        case 2:
            chance.shuffle(every)
        case 3:
            every[k] = replace(every[k], tensor=chance.choice((*(d.tensor for d in every), "nobody", "i0", "")))
        case 4:
            every[k] = replace(every[k], dtype=chance.choice([*DTYPES.values()]))
        case 5:
            every[k] = _with_space(every[k], chance)
        case _:
            every[k] = replace(every[k], rule=_rule(every[k], every, chance))
    return every


def _with_space(d: Definition, chance: random.Random) -> Definition:
    match chance.randrange(5):
        case 0:
            return replace(d, shape=_list(d.shape, chance))
        case 1:
            return replace(d, space=_list(d.space, chance))
        case 2:
            return replace(d, place=_list(d.place, chance))
        case 3:
            shape = _list(d.shape, chance)
            return replace(d, shape=shape, space=shape, place=tuple(sym(f"i{k}") for k in range(len(shape))))
        case _:
            return replace(d, shape=(), space=(), place=())


def _rule(d: Definition, every: list[Definition], chance: random.Random) -> Rule:
    """The same rule on other operands, or another rule on the same operands."""
    operands = [_operand(o, every, chance) for o in all_operands(d.rule)]
    if chance.random() < 0.3 and operands:
        if chance.random() < 0.5:
            operands.pop()
        else:
            operands.append(chance.choice(operands))
    accesses = [o for o in operands if isinstance(o, Access)] or [Access(every[0].tensor, ())]
    op = chance.choice([*ELEMENTWISE.values()])
    dtype = chance.choice((d.dtype, float64, *DTYPES.values()))
    first = operands[0] if operands else accesses[0]
    match chance.randrange(8), d.rule:
        case 0, Reduce() as rule:
            ends = tuple((chance.randrange(-1, 4), chance.choice((const(1), *d.space, sym("i0")))) for _ in range(chance.randrange(3)))
            starts = tuple((chance.randrange(-1, 4), chance.choice((const(1), *d.space, sym("i0")))) for _ in range(chance.randrange(2)))
            return replace(rule, operands=tuple(operands), dtype=dtype, ends=ends, starts=starts)
        case 1, Reduce() as rule:
            return replace(rule, body=op, init=Immediate(chance.choice((0, 1.5, True)), dtype))
        case 2, Accumulate() as rule:
            return replace(rule, operand=first, axis=chance.randrange(-1, 4), dtype=dtype, start=chance.choice((const(0), *d.space, sym("i1"))))
        case ((0 | 1 | 2), Iterate() as rule):
            return replace(rule, op=chance.choice((rule.op, op)), operands=tuple(operands), axis=chance.randrange(-1, 4), dtype=dtype)
        case ((0 | 1 | 2 | 3), Find() as rule):
            return replace(rule, source=accesses[0], values=tuple(accesses[1:]), extents=_list(rule.extents, chance))
        case ((0 | 1 | 2 | 3), Whole() as rule):
            return replace(rule, parts=tuple(a.buffer for a in accesses) or rule.parts, places=tuple(_list(p, chance) for p in rule.places))
        case ((0 | 1 | 2 | 3), Pick() as rule):
            return replace(rule, cases=tuple(ChoiceCase(chance.choice((c.cond, TRUE, FALSE)), o) for c, o in zip(rule.cases, operands, strict=False)))
        case 4, _:
            return Pick(tuple(ChoiceCase(chance.choice((TRUE, FALSE)), o) for o in operands))
        case 5, _:
            return Whole(tuple(a.buffer for a in accesses), tuple(a.index for a in accesses), tuple(chance.choice((TRUE, FALSE)) for _ in accesses))
        case 6, _:
            return Find(accesses[0], tuple(accesses[1:]), d.shape)
        case _:
            return Apply(op if chance.random() < 0.5 else ELEMENTWISE["copy"], tuple(operands), dtype)


def _operand(operand: Operand, every: list[Definition], chance: random.Random) -> Operand:
    index = operand.index if isinstance(operand, Access) else ()
    name = operand.buffer if isinstance(operand, Access) else every[0].tensor
    match chance.randrange(7):
        case 0:
            return Access(name, _list(index, chance))
        case 1:
            return Access(chance.choice(every).tensor, index)
        case 2:
            return Access("nobody", index)
        case 3:
            return Immediate(chance.choice((0, -1, 2.5, True)), chance.choice([*DTYPES.values()]))
        case 4:
            return ScalarValue(name)
        case 5:
            return IndexOf(chance.choice((const(3), sym("i0"), sym("nobody"))))
        case _:
            return operand


def _list(es: tuple[Expr, ...], chance: random.Random) -> tuple[Expr, ...]:
    """A list with one expression changed, removed or added."""
    found = [*es]
    k = chance.randrange(len(found)) if found else 0
    what: int = chance.randrange(5)
    match what:
        case 0 if found:
            del found[k]
        case 1:
            found.insert(k, const(chance.choice((0, 1, 4))))
        case 2 if found:
            found[k] = chance.choice((const(0), const(-1), const(7), sym("i0"), sym("i7"), sym("v0"), sym("tile.0"), sym("threadIdx.x"), sym("nobody")))
        case 3 if len(found) > 1:
            found[k], found[k - 1] = found[k - 1], found[k]
        case _:
            if found:
                found[k] = chance.choice((found[k] + 1, found[k] * 2, -found[k], found[k] // 2, found[k] % 3))
    return tuple(found)


def _holds(holds: Holds | None, kernel: Kernel, chance: random.Random) -> Holds | None:
    holds = holds or Holds(kernel.definitions[0].tensor, ())
    match chance.randrange(6):
        case 0:
            return None
        case 1:
            return replace(holds, tensor=chance.choice((*(d.tensor for d in kernel.definitions), *(p.name for p in kernel.inputs), "nobody")))
        case 2:
            return replace(holds, content=chance.choice([*Content]))
        case 3:
            return replace(holds, content=chance.choice([*Content]), index=_list(holds.index, chance))
        case 4:
            return replace(holds, tile=chance.choice(((), (2,), (4, 4), (64, 8, 16), (0,), (-1,))))
        case _:
            return replace(holds, index=_list(holds.index, chance))


# -- texts --------------------------------------------------------------------------------------------------------------------------

TOKEN = re.compile(r"[A-Za-z_][\w.]*|\d+(?:\.\d+)?|==|<=|>=|!=|//|&&|\|\||<-|->|\.\.|[^\sA-Za-z_0-9]")


def hostile_texts(text: str, chance: random.Random) -> Iterator[str]:
    """Yield endless texts with one token or line removed, duplicated, changed or exchanged."""
    lines = text.split("\n")
    while True:
        found = [*lines]
        k = chance.randrange(len(found))
        match chance.randrange(8):
            case 0:
                del found[k]
            case 1:
                found.insert(k, found[k])
            case 2:
                j = chance.randrange(len(found))
                found[k], found[j] = found[j], found[k]
            case _:
                found[k] = _retold(found[k], lines, chance)
        yield "\n".join(found)


def _retold(line: str, lines: list[str], chance: random.Random) -> str:
    tokens = [*TOKEN.finditer(line)]
    if not tokens:
        return line
    at_, others = chance.choice(tokens), TOKEN.findall(chance.choice(lines))
    new = chance.choice(("", f"{at_[0]} {at_[0]}", chance.choice(others) if others else "", "0", "-1", "i0", "1.5", f"{at_[0]} + 1"))
    return line[: at_.start()] + new + line[at_.end() :]

"""Random value faults in random kernels: whatever the simulator computes wrong, execution finds; what execution lets through, the simulator computes right."""

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from taskfuse.check.refuted import TooLarge, WorkBudget
from taskfuse.check.values.execution import execute
from taskfuse.errors import TaskfuseError
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.values import MODULAR
from taskfuse.kir import Kernel, map_stmts, stmt_text, walk
from taskfuse.kir.nodes import AsyncCopy, Choose, Compute, GatherCopy, Stmt, VectorCopy
from taskfuse.kir.operands import Access
from taskfuse.kir.products import Shuffle
from taskfuse.sim import simulate
from taskfuse.testing.case import Case
from tests.random_cases import random_case_of

Body = tuple[Stmt, ...]


def bumped(access: Access, chance: random.Random) -> Access:
    """A neighbor of an element."""
    k = chance.randrange(len(access.index))
    return replace(access, index=(*access.index[:k], access.index[k] + chance.choice((-1, 1)), *access.index[k + 1 :]))


def faults(s: Stmt, chance: random.Random) -> Iterator[Stmt | Body]:
    """What could stand in place of a statement, and mean something else."""
    match s:
        case Compute(operands=operands):
            for k, o in enumerate(operands):
                if isinstance(o, Access) and o.index:
                    yield replace(s, operands=(*operands[:k], bumped(o, chance), *operands[k + 1 :]))
            if len(operands) > 1:
                yield replace(s, operands=(operands[1], operands[0], *operands[2:]))
            yield from ((), (s, s))
        case VectorCopy() | AsyncCopy() | GatherCopy():
            if s.source.index:
                yield replace(s, source=bumped(s.source, chance))
            yield ()
        case Choose(cases=cases):
            yield replace(s, cases=tuple(replace(a, operand=b.operand) for a, b in zip(cases, reversed(cases), strict=True)))
        case Shuffle():
            yield from (replace(s, mask=s.mask % 16 * 2 or 1), ())
        case _:
            pass


def mutants(kernel: Kernel, chance: random.Random, count: int) -> Iterator[tuple[str, Kernel]]:
    """Kernels with one fault each, that obey the rules of kernel IR."""
    found = [(s, new) for s in walk(kernel) for new in faults(s, chance)]
    chance.shuffle(found)
    for old, new in found[:count]:

        def put(s: Stmt, old: Stmt = old, new: Stmt | Body = new) -> Stmt | Body:
            return new if s is old else s

        mutant = replace(kernel, body=map_stmts(kernel.body, put))
        try:
            mutant.check_ir()
        except TaskfuseError:
            continue
        yield stmt_text(old, kernel), mutant


def is_right(case: Case, kernel: Kernel) -> bool | None:
    """The simulator computes what NumPy does; ``None``: it stops at a fault."""
    arguments = case.arguments()
    try:
        outs = simulate(kernel, arguments, values=MODULAR)
    except TaskfuseError:
        return None
    wanted = evaluate(case.plain, arguments, MODULAR)
    return all(bool(((a == b) | ((a != a) & (b != b))).all()) for a, b in zip(outs, wanted, strict=True))


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_what_is_computed_wrong_is_found(first: int) -> None:
    looked = wrong = 0
    for seed in range(first, first + 10):
        case = random_case_of(seed)
        if case.kernel is None or any(np.size(a) == 0 for a in case.arguments()):
            continue
        try:
            assert execute(case.kernel, case.sizes, WorkBudget(1_500, 10**6)) is None, case.report()
        except TooLarge:
            continue
        for text, mutant in mutants(case.kernel, random.Random(seed), 3):
            found = execute(mutant, case.sizes, WorkBudget(10**5, 10**7))
            right = is_right(case, mutant)
            looked += 1
            wrong += right is False
            assert right is not False or found is not None, f"{text}\n{case.report()}"
    assert looked > 3
    assert wrong <= looked

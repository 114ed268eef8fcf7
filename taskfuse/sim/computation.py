"""Instructions that compute and copy elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from taskfuse.dtypes import DType, int64
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.kir.nodes import Access, Choose, Compute, Immediate, IndexOf, Operand, ScalarValue, VectorCopy
from taskfuse.sim.agent import Agent, Signal
from taskfuse.sim.collectives import check_alignment
from taskfuse.sim.fault import Fault
from taskfuse.sim.memory import read, write

if TYPE_CHECKING:
    from taskfuse.sim.program import Program

Instruction = Callable[[Agent], Signal | None]
Fetch = Callable[[Agent], Any]
_CAST = ELEMENTWISE["cast"]


def _operand(program: Program, operand: Operand) -> tuple[Fetch, DType]:
    values = program.values
    match operand:
        case Access():
            site = program.site(operand)
            return (lambda agent: read(agent.block.memory, site, agent.lanes, agent.env)), program.dtypes[operand.buffer]
        case Immediate():
            constant = values.literal(operand.value, operand.dtype)
            return (lambda agent: constant), operand.dtype
        case ScalarValue():
            name = operand.name
            return (lambda agent: agent.block.machine.scalars[name]), program.scalars[name]
        case IndexOf():
            code = program.expr(operand.value)
            return (lambda agent: np.asarray(code.at(agent.lanes, agent.env), np.int64)), int64


def compute(program: Program, stmt: Compute) -> Instruction:
    """``out = op(operands)``."""
    out, op, dtype = program.site(stmt.out), stmt.op, stmt.dtype
    fetches, dtypes = zip(*(_operand(program, o) for o in stmt.operands), strict=True)
    apply, out_dtype = program.values.apply, program.dtypes[stmt.out.buffer]
    signal = Signal.POINT if program.is_point(stmt.out, *stmt.operands) else None

    def run(agent: Agent) -> Signal | None:
        value = apply(op, [fetch(agent) for fetch in fetches], dtypes, dtype, out_dtype)
        write(agent.block.memory, out, agent.lanes, agent.env, value)
        return signal

    return run


def choose(program: Program, stmt: Choose) -> Instruction:
    """Every lane reads the operand of its first case that holds, and no other."""
    out, out_dtype, apply = program.site(stmt.out), program.dtypes[stmt.out.buffer], program.values.apply
    storage = program.values.storage(out_dtype)
    cases = [(program.expr(c.cond), *_operand(program, c.operand)) for c in stmt.cases]
    signal = Signal.POINT if program.is_point(stmt.out, *(c.operand for c in stmt.cases)) else None

    def run(agent: Agent) -> Signal | None:
        everyone = agent.lanes
        left = everyone
        result: Any = None
        for cond, fetch, dtype in cases:
            yes, no = cond.split(left, agent.env, agent.block.machine.table)
            if yes is None:
                continue
            agent.lanes = yes
            value = apply(_CAST, [fetch(agent)], (dtype,), out_dtype, out_dtype)
            if yes is everyone:
                result = value
            else:
                if result is None:
                    result = np.empty(everyone.count, storage)
                result[np.searchsorted(everyone.ids, yes.ids)] = value
            if no is None:
                break
            left = no
        else:
            raise Fault("no case of the choice holds", thread=left.first)
        agent.lanes = everyone
        write(agent.block.memory, out, everyone, agent.env, result)
        return signal

    return run


def vector_copy(program: Program, stmt: VectorCopy) -> Instruction:
    """Consecutive elements by one instruction."""
    out, source = program.site(stmt.out, stmt.width), program.site(stmt.source, stmt.width)
    size = stmt.width * program.dtypes[stmt.out.buffer].itemsize
    signal = Signal.POINT if program.is_point(stmt.out, stmt.source) else None

    def run(agent: Agent) -> Signal | None:
        memory = agent.block.memory
        for site in (source, out):
            check_alignment(agent, site, size)
        value = read(memory, source, agent.lanes, agent.env)
        write(memory, out, agent.lanes, agent.env, value)
        return signal

    return run

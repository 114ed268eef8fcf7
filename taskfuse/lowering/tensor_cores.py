"""Statements of tensor-core atoms: wgmma and stmatrix.

Each builder reads an operand's place off the domains, evaluates it on every point of the atom's tile, and compares it with what the
instruction does: matrix descriptors for Shared operands, the fragment layout for registers. What no instruction executes is an error.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from taskfuse.ir.expr import Read, Reduction
from taskfuse.ir.scalar import FALSE, TRUE, Const, Expr, Facts, const, evaluate, ge, prove, simplify, substitute, sym
from taskfuse.ir.storage import storage_operands
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import THREAD_TYPES, MemoryType
from taskfuse.kir.limits import WARP
from taskfuse.kir.nodes import Access, Descriptor, StMatrix, Wgmma
from taskfuse.lowering.domains import owner_digits, product, refused
from taskfuse.lowering.fragments import fragment_register, fragment_thread
from taskfuse.lowering.indexing import atom_symbols
from taskfuse.lowering.matrix import NoDescriptorError, derive
from taskfuse.lowering.plan import Environment, PStmt, base_name
from taskfuse.lowering.statements import Statements

TIDX = THREAD_TYPES[0]


def wgmma(st: Statements, tv: TensorView) -> list[PStmt]:
    """``acc (+)= A @ B^T`` on one tile by a warpgroup; the first of a sum sets the accumulators."""
    atom, expr = tv.schedule.atom, st.definition(tv)
    assert atom is not None
    assert isinstance(expr, Reduction)
    assert atom.tile is not None
    env = st.indexer.reading_environment(tv)
    _check_lanes(st, tv, env)
    m, n, k = atom_symbols(tv).values()
    sizes = dict(zip((m, n, k), atom.tile, strict=True))
    a, b = _factors(st, tv, env, m, n)
    acc = _accumulators(st, tv, env, (m, n), sizes)
    loops = [env.values[x] for x in tv.loop if x.is_reduction and tv.schedule.ptype(x).is_loop]
    started = TRUE if st.fills(tv) else ge(sum(loops, const(0)), 1) if loops else FALSE
    first = Access(acc.buffer, tuple(simplify(substitute(e, {m: const(0), n: const(0)}), env.facts) for e in acc.index))
    descriptors = [_descriptor(st, tv, env, source, access, (row, sizes[row]), (k, sizes[k])) for (source, access), row in ((a, m), (b, n))]
    stmt = Wgmma(sizes[n], sizes[k], first, *descriptors, started, a[0].dtype)
    return [PStmt(tv, st.indexer.tree.place[tv], stmt, env.guards, env.facts, (acc,), (a[1], b[1], acc))]


def stmatrix(st: Statements, tv: TensorView) -> list[PStmt]:
    """A 16 x 16 tile of 16-bit elements from the registers of a warp to Shared memory."""
    atom = tv.schedule.atom
    assert atom is not None
    assert atom.tile is not None
    env = st.indexer.environment(tv)
    _check_lanes(st, tv, env)
    m, n = atom_symbols(tv).values()
    sizes = dict(zip((m, n), atom.tile, strict=True))
    out = st.indexer.write(tv, env)
    (read,) = (o for o in storage_operands(st.fusion, st.definition(tv)) if isinstance(o, Read))
    source = st.indexer.read(tv, env, read)[0]
    assert isinstance(source, Access)
    inside, held = st.indexer.memory[tv], st.indexer.memory[read.tensor]
    if inside is not MemoryType.Shared or held is not MemoryType.Local or tv.dtype.itemsize != 2:
        raise refused(
            tv,
            f"the atom {atom.name} copies 16-bit elements from registers to Shared memory, not {tv.dtype.name} from {held.value} to {inside.value}",
            f"spread the loop axes of {read.tensor.name} with fragment(), so that its elements lie with the lanes that store them",
        )
    _check_registers(tv, source, (m, n), sizes, env.facts)
    _check_rows(tv, out, n, env.facts)
    lane = sym(base_name(TIDX, st.indexer.tree.place[tv])) % WARP
    at = {m: lane % 16, n: lane // 16 * 8}
    start = {m: const(0), n: const(0)}
    place = Access(out.buffer, tuple(simplify(substitute(e, at), env.facts) for e in out.index))
    registers = Access(source.buffer, tuple(simplify(substitute(e, start), env.facts) for e in source.index))
    st.alignments[tv.name] = max(st.alignments.get(tv.name, 1), 16)
    return [PStmt(tv, st.indexer.tree.place[tv], StMatrix(place, registers), env.guards, env.facts, (out,), (source,))]


def _check_lanes(st: Statements, tv: TensorView, env: Environment) -> None:
    """All lanes of whole warps (or warpgroups) execute the atom together."""
    atom, task = tv.schedule.atom, st.indexer.tree.place[tv]
    assert atom is not None
    if not st.indexer.regions.is_aligned(task, atom.lanes):
        raise refused(
            tv,
            f"the atom {atom.name} is executed by {atom.lanes} threads with consecutive numbers, and the region of {task.name} is not provably made of such",
            f"give TIDx and the types around it extents that are multiples of {atom.lanes}",
        )
    base = base_name(TIDX, task)
    split = next((g for g in env.guards if base in g.free), None)
    if split is not None:
        raise refused(tv, f"the atom {atom.name} would run under the guard {split}, which splits its lanes", "split by divisors")


def _factors(st: Statements, tv: TensorView, env: Environment, m: str, n: str) -> tuple[tuple[TensorView, Access], tuple[TensorView, Access]]:
    """The operands with rows m and with rows n: tensor and access."""
    found: dict[str, tuple[TensorView, Access]] = {}
    for operand in storage_operands(st.fusion, st.definition(tv)):
        access = st.indexer.read(tv, env, operand)[0] if isinstance(operand, Read) else None
        if not isinstance(operand, Read) or not isinstance(access, Access):
            raise refused(tv, "a factor of its products is no tensor", "multiply tensors")
        free = {name for e in access.index for name in e.free} & {m, n}
        if len(free) != 1 or free <= found.keys():
            raise refused(tv, f"{operand.tensor.name} does not run over one of the atom's two result axes", "cover with the atom one axis of each factor")
        found[free.pop()] = operand.tensor, access
    if len(found) != 2:
        raise refused(tv, "the atom multiplies two tensors", "use the atom on a matrix product")
    return found[m], found[n]


def _descriptor(st: Statements, tv: TensorView, env: Environment, source: TensorView, access: Access, rows: tuple[str, int], k: tuple[str, int]) -> Descriptor:
    atom = tv.schedule.atom
    assert atom is not None
    memory = st.indexer.memory.get(source)
    if memory is not MemoryType.Shared:
        where = MemoryType.Global if memory is None else memory
        raise refused(tv, f"the atom {atom.name} reads {source.name}, which lives in {where.value} memory", f"{source.name}.cache_after() in Shared memory")
    kept = tuple(a.extent for a in st.indexer.kept_axes(source))
    shape = (const(1),) * (len(access.index) - len(kept)) + kept
    try:
        tile = derive(access.index, shape, source.dtype.itemsize, rows, k, env.facts)
    except NoDescriptorError as e:
        raise refused(source, f"the atom {atom.name} of {tv.name} cannot read it: {e.reason}", e.help) from None
    st.alignments[source.name] = max(st.alignments.get(source.name, 1), tile.align)
    return Descriptor(Access(access.buffer, tile.start), const(0), tile.swizzle, tile.lbo, tile.sbo, tile.major)


def _accumulators(st: Statements, tv: TensorView, env: Environment, tile: tuple[str, str], sizes: dict[str, int]) -> Access:
    """The access of the accumulators, whose place is the instruction's for every element of the tile."""
    acc = st.indexer.write(tv, env, MemoryType.Local, st.accumulator(tv))
    if st.indexer.memory[tv] is not MemoryType.Local or st.accumulator(tv) != tv.name:
        raise refused(tv, "the atom accumulates in registers", "leave its memory type unset, and copy the result with cache_before()")
    _check_registers(tv, acc, tile, sizes, env.facts)
    own = owner_digits(tv, TIDX)
    owner = const(0)
    for k, a in enumerate(own):
        owner = owner + env.values[a] * product(own[k + 1 :])
    m, n = (sym(name) for name in tile)
    if any(_points(simplify(owner - fragment_thread(m, n), env.facts), tile, sizes, tv).ravel()):
        raise refused(tv, "its allocation domain is not how the atom holds a matrix in registers", "leave the allocation domain that set_atom gives it")
    return acc


def _check_registers(tv: TensorView, access: Access, tile: tuple[str, str], sizes: dict[str, int], facts: Facts) -> None:
    """Every element of a tile lies in the register, counted from the first element's, where the instruction has it."""
    m, n = (sym(name) for name in tile)
    (index,) = access.index
    moved = simplify(index - substitute(index, dict.fromkeys(tile, const(0))), facts)
    if not moved.free <= set(tile) or any(_points(moved - fragment_register(m, n), tile, sizes, tv).ravel()):
        raise refused(
            tv, f"the registers of {access.buffer} are not in the order of the instruction", "spread both tensors with fragment() or the atom's layout"
        )


def _points(e: Expr, tile: Sequence[str], sizes: dict[str, int], tv: TensorView) -> NDArray[np.int64]:
    """An expression on every point of a tile."""
    grid = dict(zip(tile, np.meshgrid(*(np.arange(sizes[name], dtype=np.int64) for name in tile), indexing="ij"), strict=True))
    if not e.free <= set(tile):
        raise refused(
            tv, "the place of its elements in registers depends on more than the atom's axes", "bind the axes around the atom to loops or index types"
        )
    return np.broadcast_to(np.asarray(evaluate(e, grid), np.int64), tuple(sizes[name] for name in tile))


def _check_rows(tv: TensorView, out: Access, n: str, facts: Facts) -> None:
    """Rows of 8 elements are consecutive in the last axis of the storage, from a multiple of 8 on."""
    eight = sym(f"{n}.8")
    facts = facts.with_range(str(eight), 0, 1)
    rows = [[simplify(substitute(e, {n: eight * 8 + j}), facts) for e in out.index] for j in range(8)]
    *head, last = rows[0]
    together = all(row[:-1] == head and simplify(row[-1] - last, facts) is const(j) for j, row in enumerate(rows))
    if not together or not (prove(ge(0, last % 8), facts) or (isinstance(last, Const) and last.value % 8 == 0)):
        raise refused(
            tv, "rows of 8 elements of its atom's tile are not consecutive in Shared memory", "set_allocation_domain(tf.layouts.swizzled(128)), or none"
        )

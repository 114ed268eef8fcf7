"""Statements of tensor-core atoms: wgmma, mma.sync, ldmatrix and stmatrix.

Each builder reads an operand's addresses off the domains, evaluates them on every point of the atom's tile, and compares them with what the
instruction does: matrix descriptors for Shared operands, the fragment layout for registers. A layout that no instruction reads is an error.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from taskfuse.ir.atoms import Bounds
from taskfuse.ir.expr import Read
from taskfuse.ir.fragments import MATRIX_ROWS
from taskfuse.ir.scalar import FALSE, ONE, TRUE, Const, Expr, Facts, const, evaluate, ge, is_multiple, lt, prove, simplify, substitute, sym
from taskfuse.ir.storage import storage_operands, storage_terms
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import THREAD_TYPES, MemoryType
from taskfuse.kir.operands import Access, Content, Descriptor, Holds
from taskfuse.kir.products import LdMatrix, Mma, StMatrix, Wgmma
from taskfuse.lowering.domains import owner_digits, product, refused
from taskfuse.lowering.fragments import HeldTile, atom_symbols, factor, operand, result
from taskfuse.lowering.index_maps import IndexMap
from taskfuse.lowering.matrix_descriptors import NoDescriptorError, derive
from taskfuse.lowering.overhang import overhanging
from taskfuse.lowering.plan import PStmt, base_name
from taskfuse.lowering.statements import Statements
from taskfuse.lowering.witness import holds
from taskfuse.target import WARP

TIDX = THREAD_TYPES[0]


def wgmma(st: Statements, tv: TensorView) -> list[PStmt]:
    """``acc (+)= A @ B^T`` on one tile by a warpgroup; the first of a sum sets the accumulators."""
    index_map, acc, factors = _contraction(st, tv)
    atom = tv.schedule.atom
    assert atom is not None
    assert atom.tile is not None
    variables = st.indexer.index_maps.loop_symbols(tv)
    loops = [simplify(variables[x], index_map.facts) for x in tv.loop if x.is_reduction and tv.schedule.ptype(x).is_loop]
    started = TRUE if st.fills(tv) else ge(sum(loops, const(0)), 1) if loops else FALSE
    names = list(atom_symbols(tv).values())
    sizes = dict(zip(names, atom.tile, strict=True))
    (a, a_place), (b, b_place) = factors
    held = st.indexer.memory.get(a.tensor) is MemoryType.Local
    rows, depth = (names[0], sizes[names[0]]), (names[2], sizes[names[2]])
    left = _registers(tv, a, a_place, index_map) if held else _descriptor(st, tv, index_map, a, a_place, rows, depth)
    right = _descriptor(st, tv, index_map, b, b_place, (names[1], sizes[names[1]]), (names[2], sizes[names[2]]))
    made = holds(tv, index_map, Content.TERM)
    stmt = Wgmma(atom.tile[1], atom.tile[2], _first(tv, acc, index_map), left, right, started, a.tensor.dtype, b.tensor.dtype, holds=made)
    return [PStmt(tv, st.indexer.tree.place[tv], stmt, index_map.guards, index_map.facts, (acc,), (a_place, b_place, acc))]


def mma(st: Statements, tv: TensorView) -> list[PStmt]:
    """``acc += A @ B`` on one tile by a warp, all in registers."""
    index_map, acc, factors = _contraction(st, tv)
    atom = tv.schedule.atom
    assert atom is not None
    assert atom.tile is not None
    for read, _ in factors:
        memory = st.indexer.memory.get(read.tensor, MemoryType.Global)
        if memory is not MemoryType.Local:
            reason = f"the atom {atom.name} takes its factors from registers, and {read.tensor.name} lives in {memory.value} memory"
            raise refused(tv, reason, f"{read.tensor.name}.cache_after() with tf.atoms.LDMATRIX_X4, or with fragment(axes, atom, operand)")
        by_threads = read.tensor.schedule.atom is None or read.tensor.schedule.atom.bounds is not Bounds.COVER
        ends = overhanging(tv, st.indexer.ranges.facts).values()  # past other ends than those of sums are rows and columns that nobody reads
        if by_threads and any(end.is_reduction for end in ends) and not st.tails.run(read.tensor):
            reason = f"its atom computes whole tiles, and past the end of an axis {read.tensor.name} is not provably written"
            raise refused(tv, reason, f"split by divisors, or copy {read.tensor.name} from Shared memory, where it has room for whole tiles")
    (a, a_place), (b, b_place) = factors
    registers = (_registers(tv, a, a_place, index_map), _registers(tv, b, b_place, index_map))
    assert atom.shape is not None
    dtypes, made = (a.tensor.dtype, b.tensor.dtype), holds(tv, index_map, Content.TERM)
    stmt = Mma(atom.tile[2], _first(tv, acc, index_map), *registers, *dtypes, atom.shape.layouts, m=atom.shape.m, holds=made)
    return [PStmt(tv, st.indexer.tree.place[tv], stmt, index_map.guards, index_map.facts, (acc,), (a_place, b_place, acc))]


def ldmatrix(st: Statements, tv: TensorView) -> list[PStmt]:
    """A 16 x 16 tile of 16-bit elements from Shared memory, where its rows or its columns are contiguous, to the registers of a warp."""
    index_map, out, read, source = _moved(st, tv, MemoryType.Local, MemoryType.Shared)
    (index,) = out.index
    m, n = atom_symbols(tv).values()
    points = _points(simplify(index - substitute(index, {m: const(0), n: const(0)}), index_map.facts), result(tv), tv)
    order = [int(points[8 * (g % 2), 8 * (g // 2)]) // 2 for g in range(4)]  # of the matrices at (g % 2, g / 2)
    rows, columns = np.meshgrid(np.arange(16), np.arange(16), indexing="ij")
    wanted = 2 * np.asarray(order)[rows // 8 + 2 * (columns // 8)] + columns % 2
    if order not in ([0, 1, 2, 3], [0, 2, 1, 3]) or not np.array_equal(points, wanted):
        raise refused(tv, "its registers are not in an order that ldmatrix fills", "set_allocation_domain(tf.layouts.fragment()), or with halves_first=True")
    _check_lanes_hold(st, tv, result(tv), index_map)
    _check_room(st, tv, index_map, read, source)
    m_last = bool(source.index) and m in source.index[-1].free and n not in source.index[-1].free
    lanes = _rows(st, tv, source, read.tensor, order, index_map, transpose=m_last)
    stmt = LdMatrix(_first(tv, out, index_map), lanes, transpose=m_last, holds=_matrices(tv, order, index_map, transpose=m_last))
    return [PStmt(tv, st.indexer.tree.place[tv], stmt, index_map.guards, index_map.facts, (out,), (source,))]


def stmatrix(st: Statements, tv: TensorView) -> list[PStmt]:
    """A tile of 16 x 16 or 16 x 8 16-bit elements from the registers of a warp to Shared memory."""
    index_map, out, read, source = _moved(st, tv, MemoryType.Shared, MemoryType.Local)
    st.needs.align(tv, 16)
    atom = tv.schedule.atom
    assert atom is not None
    assert atom.tile is not None
    order = list(range(prod(atom.tile) // MATRIX_ROWS**2))
    stmt = StMatrix(_rows(st, tv, out, tv, order, index_map), _registers(tv, read, source, index_map), len(order), holds=_matrices(tv, order, index_map))
    return [PStmt(tv, st.indexer.tree.place[tv], stmt, index_map.guards, index_map.facts, (out,), (source,))]


def _contraction(st: Statements, tv: TensorView) -> tuple[IndexMap, Access, list[tuple[Read, Access]]]:
    """The index map of a contraction, its accumulators, and its factors: the one with the rows of the result, the one with its columns."""
    index_map = st.indexer.index_maps.reading(tv)
    _check_lanes(st, tv, index_map)
    acc = st.indexer.write(tv, index_map, MemoryType.Local, st.accumulator(tv))
    if st.indexer.memory[tv] is not MemoryType.Local or st.accumulator(tv) != tv.name:
        raise refused(tv, "the atom accumulates in registers", "leave its memory type unset, and copy the result with cache_before()")
    _check_order(tv, acc, result(tv), index_map)
    _check_lanes_hold(st, tv, result(tv), index_map)
    found: dict[int, tuple[Read, Access]] = {}
    for source in storage_terms(st.fusion, st.definition(tv)):
        access = st.indexer.read(tv, index_map, source)[0] if isinstance(source, Read) else None
        which = factor(tv, source) if isinstance(source, Read) else None
        if not isinstance(source, Read) or not isinstance(access, Access) or which is None or which in found:
            raise refused(
                tv, "its two factors are not tensors of which one has the atom's rows and one its columns", "cover with the atom one axis of each factor"
            )
        found[which] = source, access
    return index_map, acc, [found[0], found[1]]


def _moved(st: Statements, tv: TensorView, to: MemoryType, of: MemoryType) -> tuple[IndexMap, Access, Read, Access]:
    """The index map of a copy of a tile of matrices, and its two sides."""
    atom = tv.schedule.atom
    assert atom is not None
    index_map = st.indexer.index_maps.of(tv)
    _check_lanes(st, tv, index_map)
    out = st.indexer.write(tv, index_map)
    (read,) = (o for o in storage_operands(st.fusion, st.definition(tv)) if isinstance(o, Read))
    source = st.indexer.read(tv, index_map, read)[0]
    memories = st.indexer.memory[tv], st.indexer.memory.get(read.tensor, MemoryType.Global)
    if memories != (to, of) or tv.dtype.itemsize != 2:
        raise refused(
            tv,
            f"the atom {atom.name} copies 16-bit elements from {of.value} to {to.value} memory, "
            f"not {tv.dtype.name} from {memories[1].value} to {memories[0].value}",
            "spread the tensor in registers with fragment(), so that its elements lie with the lanes of the atom",
        )
    return index_map, out, read, source


def _first(tv: TensorView, access: Access, index_map: IndexMap) -> Access:
    """The access at the first point of the atom's tile."""
    start = dict.fromkeys(atom_symbols(tv).values(), const(0))
    return Access(access.buffer, tuple(simplify(substitute(e, start), index_map.facts) for e in access.index))


def _rows(st: Statements, tv: TensorView, access: Access, moved: TensorView, order: list[int], index_map: IndexMap, transpose: bool = False) -> Access:
    """The row that each lane addresses: row l % 8 of matrix l / 8. ``transpose``: rows go along the first axis of the tile."""
    m, n = atom_symbols(tv).values()
    _check_rows(tv, access, m if transpose else n, index_map.facts)
    _check_alignment(st, tv, access, moved, index_map.facts)
    row = sym(base_name(TIDX, st.indexer.tree.place[tv])) % WARP % (MATRIX_ROWS * len(order))
    at = dict(zip((m, n), _of_matrices(row, order, transpose), strict=True))
    return Access(access.buffer, tuple(simplify(substitute(e, at), index_map.facts) for e in access.index))


def _of_matrices(row: Expr, order: list[int], transpose: bool = False) -> tuple[Expr, Expr]:
    """Where a row of matrices, numbered through, begins in the tile; ``order[g]`` is the number of the matrix at (g % 2, g / 2)."""
    low, high = row // 8 % 2, row // 16
    upper, right = (low, high) if order[:2] == [0, 1] else (high, low)
    return (upper * 8, right * 8 + row % 8) if transpose else (upper * 8 + row % 8, right * 8)


def _matrices(tv: TensorView, order: list[int], index_map: IndexMap, transpose: bool = False) -> Holds:
    """The claim about matrices, by their rows and the elements of a row."""
    found = holds(tv, index_map)
    row, column = _of_matrices(sym("tile.0"), order, transpose)
    at = {"tile.0": row + sym("tile.1"), "tile.1": column} if transpose else {"tile.0": row, "tile.1": column + sym("tile.1")}
    return replace(found, index=tuple(substitute(e, at) for e in found.index), tile=(MATRIX_ROWS * len(order), 8))


def _check_lanes(st: Statements, tv: TensorView, index_map: IndexMap) -> None:
    """All lanes of whole warps (or warpgroups) execute the atom together."""
    atom, task = tv.schedule.atom, st.indexer.tree.place[tv]
    assert atom is not None
    if not st.indexer.ranges.is_aligned(task, atom.lanes):
        raise refused(
            tv,
            f"the atom {atom.name} is executed by {atom.lanes} threads with consecutive numbers, and those of {task.name} are not provably groups of such",
            f"give TIDx and the types around it extents that are multiples of {atom.lanes}",
        )
    base, lane = base_name(TIDX, task), "lane"
    unit = {base: sym(f"{base}.unit") * atom.lanes + sym(lane)}
    facts = index_map.facts.with_range(lane, 0, atom.lanes - 1)
    split = next((g for g in index_map.guards if lane in simplify(substitute(g, unit), facts).free), None)
    if split is not None:
        raise refused(tv, f"the atom {atom.name} would run under the guard {split}, which splits its lanes", "split by divisors")


def _descriptor(st: Statements, tv: TensorView, index_map: IndexMap, read: Read, access: Access, rows: tuple[str, int], k: tuple[str, int]) -> Descriptor:
    atom = tv.schedule.atom
    assert atom is not None
    source = read.tensor
    memory = st.indexer.memory.get(source)
    if memory is not MemoryType.Shared:
        where = MemoryType.Global if memory is None else memory
        raise refused(tv, f"the atom {atom.name} reads {source.name}, which lives in {where.value} memory", f"{source.name}.cache_after() in Shared memory")
    _check_room(st, tv, index_map, read, access)
    kept = tuple(a.extent for a in st.indexer.kept_axes(source))
    shape = (const(1),) * (len(access.index) - len(kept)) + kept
    try:
        tile = derive(access.index, shape, source.dtype.itemsize, rows, k, index_map.facts)
    except NoDescriptorError as e:
        raise refused(source, f"the atom {atom.name} of {tv.name} cannot read it: {e.reason}", e.help) from None
    st.needs.align(source, tile.align)
    return Descriptor(Access(access.buffer, tile.start), const(0), tile.swizzle, tile.lbo, tile.sbo, tile.major)


def _check_room(st: Statements, tv: TensorView, index_map: IndexMap, read: Read, access: Access) -> None:
    """The tiles that an atom reads lie in the storage of their tensor, and are written, also where they overhang the end of what it computes."""
    source = read.tensor
    kept = st.indexer.kept_axes(source)
    for e, a in zip(access.index[len(access.index) - len(kept) :], kept, strict=True):
        if not (prove(ge(e, 0), index_map.facts) and prove(lt(e, a.extent), index_map.facts)):
            raise refused(
                tv,
                f"its atom computes whole tiles, and may read {source.name} past the end of its storage: {e} is not provably below {a.extent}",
                f"split by divisors, or split {source.name} alike, so that its tiles are whole, too",
            )
    ends = overhanging(tv, st.indexer.ranges.facts)
    cut = next((a for a in ends if a in index_map.values and not prove(lt(index_map.values[a], a.extent), index_map.facts)), None)
    if cut is not None and not st.tails.is_brought(tv, read, index_map):
        raise refused(
            tv,
            f"its atom computes whole tiles, and past the end of an axis of {cut.extent} {source.name} is not provably written",
            f"split by divisors, or split {source.name} alike, so that its tiles are whole, too",
        )


def _registers(tv: TensorView, read: Read, access: Access, index_map: IndexMap) -> Access:
    """The first register of an operand, which lies as the instruction takes it."""
    held = operand(tv, read)
    assert held is not None
    _check_order(tv, access, held, index_map)
    return _first(tv, access, index_map)


def _check_order(tv: TensorView, access: Access, held: HeldTile, index_map: IndexMap) -> None:
    """Every element of a tile lies in the register, counted from the first element's, where the instruction has it."""
    (index,) = access.index
    moved = simplify(index - substitute(index, dict.fromkeys((held.row, held.column), const(0))), index_map.facts)
    if not np.array_equal(_points(moved, held, tv), held.fragment.owners()[1]):
        raise refused(
            tv, f"the registers of {access.buffer} are not in the order of the instruction", "spread the tensor with fragment(), or the atom's layout"
        )


def _check_lanes_hold(st: Statements, tv: TensorView, held: HeldTile, index_map: IndexMap) -> None:
    """Every element of a tile lies with the lane where the instruction puts it."""
    own = owner_digits(tv, TIDX)
    owner = const(0)
    for k, a in enumerate(own):
        owner = owner + index_map.values[a] * product(own[k + 1 :])
    base = base_name(TIDX, st.indexer.tree.place[tv])
    for lanes in held.fragment.members():  # of each unit; the first thread of one says which unit it is
        at = simplify(substitute(owner, {base: const(int(lanes[0]))}) % held.fragment.threads, index_map.facts)
        if not np.array_equal(_points(at, held, tv), lanes[held.fragment.owners()[0]]):
            raise refused(tv, "its allocation domain is not how the atom holds a matrix in registers", "leave the allocation domain that set_atom gives it")


def _points(e: Expr, held: HeldTile, tv: TensorView) -> NDArray[np.int64]:
    """An expression on every point of a tile."""
    shape = held.fragment.shape
    if not e.free <= {held.row, held.column}:
        raise refused(
            tv, "the place of its elements in registers depends on more than the atom's axes", "bind the axes around the atom to loops or index types"
        )
    rows, columns = np.meshgrid(*(np.arange(n, dtype=np.int64) for n in shape), indexing="ij")
    return np.broadcast_to(np.asarray(evaluate(e, {held.row: rows, held.column: columns}), np.int64), shape)


def _check_rows(tv: TensorView, out: Access, n: str, facts: Facts) -> None:
    """Rows of 8 elements are consecutive in the last axis of the storage, from a multiple of 8 on."""
    eight = sym(f"{n}.8")
    facts = facts.with_range(str(eight), 0, 1)
    rows = [[simplify(substitute(e, {n: eight * 8 + j}), facts) for e in out.index] for j in range(8)]
    *head, last = rows[0]
    together = all(row[:-1] == head and simplify(row[-1] - last, facts) is const(j) for j, row in enumerate(rows))
    if not together or not (prove(ge(0, last % 8), facts) or (isinstance(last, Const) and last.value % 8 == 0)):
        raise refused(
            tv,
            "rows of 8 elements of its atom's tile are not consecutive in Shared memory",
            "set_allocation_domain(tf.layouts.swizzled(128)), or leave it unset",
        )


def _check_alignment(st: Statements, tv: TensorView, access: Access, moved: TensorView, facts: Facts) -> None:
    """Rows of 8 elements start at multiples of 16 bytes wherever they lie, so that one access moves each (PTX ISA, "ldmatrix")."""
    kept = [a.extent for a in st.indexer.kept_axes(moved)]
    stride: Expr = const(1)
    for outer, e in zip(reversed(kept[:-1]), reversed(kept[1:]), strict=True):
        stride = stride * e
        if outer is not ONE and not is_multiple(stride, 8, facts):
            raise refused(
                tv,
                f"rows of its atom's tile start at multiples of {stride} elements of {moved.name}, and one access takes 8 that start at a multiple of 8",
                f"{moved.name}.set_allocation_domain(tf.layouts.swizzled(128)), or tf.layouts.padded(8)",
            )

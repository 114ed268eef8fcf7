"""The effect of tile instructions on terms: TMA boxes, matrices between registers and Shared memory, products of tensor cores.

Sources: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout", "Tensor swizzling modes"; fragments: :mod:`taskfuse.ir.fragments`.
"""

from __future__ import annotations

import numpy as np

from taskfuse.check.refuted import Refuted
from taskfuse.check.values.barriers import LaunchBarriers
from taskfuse.check.values.cells import Cells, CellStore
from taskfuse.check.values.lanes import ExecutedLanes
from taskfuse.check.values.products import multiply
from taskfuse.check.values.sending import update_box
from taskfuse.check.values.state import RunState
from taskfuse.check.values.terms import Bools, Ints, Terms
from taskfuse.dtypes import DType
from taskfuse.ir.fragments import MATRIX_ROW_BYTES, MATRIX_ROWS, Fragment, matrices
from taskfuse.ir.scalar import Expr
from taskfuse.ir.shared_layouts import operand_offsets, swizzled
from taskfuse.kir.declarations import TensorMapParam
from taskfuse.kir.nodes import Stmt, TmaLoad, TmaStore
from taskfuse.kir.operands import Access, Descriptor
from taskfuse.kir.products import LdMatrix, Mma, StMatrix, Wgmma
from taskfuse.target import WARP, WARPGROUP

# -- TMA ----------------------------------------------------------------------------------------------------------------------------


def _box(state: RunState, box: TensorMapParam, coords: tuple[Expr, ...], lanes: ExecutedLanes) -> tuple[CellStore, Ints, Bools]:
    """The tensor of a box, the places of its elements, ``[threads, elements]``, and which there are."""
    tensor = state.cells.stores[box.tensor]
    count = int(np.prod(box.box))
    steps = np.indices(box.box).reshape(len(box.box), -1)
    place, inside = np.zeros((len(lanes), count), np.int64), np.ones((len(lanes), count), np.bool_)
    for e, axis, step, extent in zip(coords, steps, box.step, tensor.extents, strict=True):
        at = lanes.values(e)[:, None] + axis * step
        inside &= (at >= 0) & (at < extent)
        place = place * extent + at
    return tensor, np.where(inside, place, 0), inside


def _image(state: RunState, access: Access, box: TensorMapParam, lanes: ExecutedLanes) -> tuple[CellStore, Ints]:
    """The byte addresses in Shared memory of a box's elements, ``[threads, elements]``."""
    store = state.cells.stores[access.buffer]
    first = store.origin + state.places(access, lanes) * store.dtype.itemsize
    linear = first[:, None] + np.arange(int(np.prod(box.box))) * store.dtype.itemsize
    return store, swizzled(linear, box.swizzle)


def _same_dtype(stmt: Stmt, dtypes: set[DType]) -> None:
    if len(dtypes) > 1:
        raise Refuted(type(stmt).__name__, f"it moves bytes between elements of {' and '.join(sorted(d.name for d in dtypes))}")


def tma_load(state: RunState, barriers: LaunchBarriers, stmt: TmaLoad, lanes: ExecutedLanes) -> None:
    """A box from Global to Shared memory of each block that it reaches; zeros outside the tensor."""
    box = state.maps[stmt.map]
    tensor, places, inside = _box(state, box, stmt.coords, lanes)
    store, addresses = _image(state, stmt.out, box, lanes)
    _same_dtype(stmt, {tensor.dtype, store.dtype})
    found = state.zero(places.shape, tensor.dtype)
    if inside.any():
        threads = np.broadcast_to(lanes.ids[:, None], places.shape)[inside]
        found[inside] = state.fetch(tensor, np.zeros(len(threads), np.int64), places[inside], stmt, threads, lanes.role)
    own = barriers.cells(lanes, stmt.barrier)
    reached = barriers.reached(stmt.across)[lanes.blocks] if stmt.across else lanes.blocks[:, None]
    for blocks, full in zip(reached.T, barriers.across(lanes, own, stmt.across).T, strict=True):
        owners = np.broadcast_to(blocks[:, None], addresses.shape)
        cells = Cells.addressed(store, owners, addresses, "a TMA load")
        state.place(store, cells.reshape(-1), found.flat(), stmt, np.repeat(lanes.ids, addresses.shape[1]), lanes.role)
        barriers.loaded(full, addresses.shape[1] * tensor.dtype.itemsize)


def tma_store(state: RunState, stmt: TmaStore, lanes: ExecutedLanes) -> None:
    """A box from Shared to Global memory, clipped; or one that is combined with it."""
    box = state.maps[stmt.map]
    tensor, places, inside = _box(state, box, stmt.coords, lanes)
    store, addresses = _image(state, stmt.source, box, lanes)
    _same_dtype(stmt, {tensor.dtype, store.dtype})
    owners = np.broadcast_to(lanes.blocks[:, None], addresses.shape)[inside]
    threads = np.broadcast_to(lanes.ids[:, None], addresses.shape)[inside]
    found = state.taken(store, Cells.addressed(store, owners, addresses[inside], "a TMA store"), stmt, threads, lanes.role)
    if stmt.combine is not None:
        if (sent := state.sent.get(tensor.name)) is not None:
            update_box(state, sent, stmt, lanes, places, inside, found)
        return
    state.put(tensor, np.zeros(len(threads), np.int64), places[inside], found, stmt, threads, lanes.role)


# -- registers ----------------------------------------------------------------------------------------------------------------------


def _gathered(held: Terms, fragment: Fragment) -> Terms:
    """The matrices ``[groups, rows, columns]`` that registers ``[threads, count]`` hold."""
    owners, registers = fragment.owners()
    members = fragment.members()
    return held.reshape(-1, fragment.threads, fragment.count)[:, members].reshape(-1, members.shape[1], fragment.count)[:, owners, registers]


def _scattered(matrix: Terms, fragment: Fragment) -> Terms:
    """The inverse."""
    rows, columns = fragment.table()
    found = matrix[:, rows, columns].reshape(-1, fragment.threads, fragment.count)
    return found[:, np.argsort(fragment.members().reshape(-1))].reshape(-1, fragment.count)


def _rows(state: RunState, access: Access, fragment: Fragment, lanes: ExecutedLanes, count: int) -> tuple[CellStore, Ints]:
    """The places of the elements of matrices in Shared memory, ``[warps, lanes, registers]``: a lane's elements are in rows that other lanes address."""
    store = state.cells.stores[access.buffer]
    used = lanes.ids % WARP < MATRIX_ROWS * count
    width = MATRIX_ROW_BYTES // store.dtype.itemsize
    addressing = lanes if used.all() else lanes.some(used)
    first = state.places(access, addressing, width).reshape(-1, MATRIX_ROWS * count)
    rows, columns = fragment.table()
    return store, first[:, rows] + columns


def ldmatrix(state: RunState, stmt: LdMatrix, lanes: ExecutedLanes) -> None:
    """Matrices from Shared memory to registers."""
    size = state.cells.stores[stmt.source.buffer].dtype.itemsize
    fragment = matrices(stmt.matrices, size, transpose=stmt.transpose)
    store, places = _rows(state, stmt.source, fragment, lanes, stmt.matrices)
    places = places.reshape(len(lanes), -1)
    found = state.fetch(store, lanes.blocks[:, None], places, stmt, lanes.ids, lanes.role)
    state.write_wide(stmt.out, lanes, found, stmt)


def stmatrix(state: RunState, stmt: StMatrix, lanes: ExecutedLanes) -> None:
    """Matrices from registers to Shared memory."""
    size = state.cells.stores[stmt.out.buffer].dtype.itemsize
    fragment = matrices(stmt.matrices, size, transpose=stmt.transpose)
    store, places = _rows(state, stmt.out, fragment, lanes, stmt.matrices)
    held = state.read_wide(stmt.source, lanes, fragment.count, stmt)
    owners, threads = np.repeat(lanes.blocks, fragment.count), np.repeat(lanes.ids, fragment.count)
    state.put(store, owners, places.reshape(-1), held.flat(), stmt, threads, lanes.role)


# -- products -----------------------------------------------------------------------------------------------------------------------


def mma(state: RunState, stmt: Mma, lanes: ExecutedLanes) -> None:
    """``acc += A @ B`` by each warp, or by each quad pair of it."""
    row = stmt.row
    assert row.a_registers is not None
    assert row.b_registers is not None
    shapes = stmt.accumulators, row.a_registers, row.b_registers
    acc, a, b = (_gathered(state.read_wide(r, lanes, f.count, stmt), f) for r, f in zip((stmt.acc, stmt.a, stmt.b), shapes, strict=True))
    b = Terms(b.tag.swapaxes(1, 2), b.data.swapaxes(1, 2))
    first = np.arange(0, len(lanes), WARP)[:, None] + shapes[0].members()[:, 0]
    made = multiply(state, stmt, lanes.some(first.reshape(-1)), acc, a, b)
    state.write_wide(stmt.acc, lanes, _scattered(made, shapes[0]), stmt)


def wgmma(state: RunState, stmt: Wgmma, lanes: ExecutedLanes) -> None:
    """``acc = A @ B^T``, added to its contents if it accumulates, by each warpgroup."""
    if len(lanes) % WARPGROUP or (lanes.ids[::WARPGROUP] % lanes.launch.per % WARPGROUP).any():
        raise Refuted("wgmma", "a part of a warpgroup executes it", state.launch.thread(int(lanes.ids[0])))
    fragment, row = stmt.accumulators, stmt.row
    first = lanes.some(np.arange(0, len(lanes), WARPGROUP))
    held = _gathered(state.read_wide(stmt.acc, lanes, fragment.count, stmt), fragment)
    accumulate = first.holds(stmt.accumulate)
    if accumulate is not True:
        dtype = state.cells.stores[stmt.acc.buffer].dtype
        fresh = np.ones(len(first), np.bool_) if accumulate is False else ~accumulate
        held = held.copy()
        held[fresh] = state.zero((int(fresh.sum()), *fragment.shape), dtype)
    if isinstance(stmt.a, Descriptor):
        a = _tile(state, stmt, stmt.a, row.m, first)
    else:
        assert row.a_registers is not None
        a = _gathered(state.read_wide(stmt.a, lanes, row.a_registers.count, stmt), row.a_registers)
    made = multiply(state, stmt, first, held, a, _tile(state, stmt, stmt.b, stmt.n, first))
    state.write_wide(stmt.acc, lanes, _scattered(made, fragment), stmt)


def _tile(state: RunState, stmt: Wgmma, d: Descriptor, rows: int, lanes: ExecutedLanes) -> Terms:
    """The operand in Shared memory that a descriptor describes: ``[warpgroups, rows, k]``."""
    store = state.cells.stores[d.base.buffer]
    size = store.dtype.itemsize
    base = store.origin + state.places(d.base, lanes) * size + lanes.value(d.offset)
    addresses = swizzled(base[:, None, None] + operand_offsets(rows, stmt.k, size, d.swizzle, d.lbo, d.sbo, d.major), d.swizzle)
    owners = np.broadcast_to(lanes.blocks[:, None, None], addresses.shape)
    return state.taken(store, Cells.addressed(store, owners, addresses, "a wgmma"), stmt, lanes.ids, lanes.role)

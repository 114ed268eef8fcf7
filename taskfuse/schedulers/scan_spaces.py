"""The iteration spaces around scans: the scans' own, and those of code that reads their results at other points along the scanned axis.

Moving averages are differences of a scan at two places, discounts are scans from the end: their code has the rows of the scans, in any order of axes, and
an axis of its own along each, or none. Where a scan is read at other points than its own, the threads of a block find it in Shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.ir.axes import Axis, iteration_position
from taskfuse.ir.expr import FirstValid, Pointwise, Read, Scan, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import has_code, needed, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.schedulers.elementwise import is_aligned, stored
from taskfuse.schedulers.schedule import refuse

SEVERAL = "tf.compile makes several kernels"


@dataclass(frozen=True, slots=True)
class RowSpace:
    """Where the axes of a tensor's code are.

    Attributes:
        kept: positions of the axes that count rows, in one order for all.
        walk: the position of the axis along a row; ``None``: it has one element of each.
        is_own: the axes are those of the scans.
    """

    kept: tuple[int, ...]
    walk: int | None
    is_own: bool

    @property
    def is_along(self) -> bool:
        """Elements of a row lie side by side in memory, and not those of neighboring rows."""
        return self.walk is not None and all(k < self.walk for k in self.kept)


@dataclass(frozen=True, slots=True)
class ScanSpaces:
    """The spaces of a fusion in which all is computed at its readers' points.

    Attributes:
        axis: the scanned one.
        axes: those of the scans.
        own: their space.
        others: spaces of tensors with other axes.
        shared: scans that are read elsewhere than at their own points.
        beside: the position of the axis along which rows stand side by side in blocks; ``None``: the elements of a row lie side by side.
    """

    axis: int
    axes: tuple[Axis, ...]
    own: RowSpace
    others: dict[TensorView, RowSpace]
    shared: frozenset[TensorView]
    beside: int | None

    def of(self, tv: TensorView) -> RowSpace:
        """The space of a tensor."""
        return self.others.get(tv, self.own)

    @property
    def is_inner(self) -> bool:
        """Whether the elements of a row lie side by side."""
        return self.beside is None


def find_spaces(fusion: Fusion, beside: int | None = None) -> ScanSpaces:
    """The spaces of ``fusion``.

    Args:
        beside: the position of the axis along which rows stand side by side in blocks; ``None``: the scans' last axis, if that is not scanned. Outputs in which
            elements of a row lie side by side then read the scans elsewhere.

    Raises:
        UnsupportedError: it scans nothing, or several axes; code is neither a scan nor elementwise, or has other rows than the scans.
    """
    scans = [e for e in needed(fusion) if isinstance(e, Scan)]
    if not scans:
        raise refuse(fusion, "scan", "it scans nothing")
    first = scans[0]
    for e in needed(fusion):
        if not isinstance(e, Pointwise | FirstValid | View | Scan):
            raise refuse(fusion, "scan", f"{e.output.name} is neither a scan nor elementwise", "tf.schedulers.auto asks other schedulers")
    for e in scans:
        if e.axis != first.axis:
            raise refuse(fusion, "scan", f"{e.output.name} scans along axis {e.axis}, and {first.output.name} along axis {first.axis}", SEVERAL)
        if not _are_alike(e.output, first.output):
            raise refuse(fusion, "scan", f"the scans {first.output!r} and {e.output!r} differ in shape", "tf.compile makes a kernel for each shape")
    axes, axis = first.output.root, first.axis
    is_turned = beside is not None
    beside = len(axes) - 1 if beside is None and axis < len(axes) - 1 else beside
    own = RowSpace(tuple(sorted((k for k in range(len(axes)) if k != axis), key=lambda k: k == beside)), axis, is_own=True)
    early = {tv for e in scans for tv in (e.output, *_behind(fusion, e.output))}
    for tv in early:
        _space(fusion, tv, [tv], axes, own)
    others: dict[TensorView, RowSpace] = {}
    known: dict[TensorView, RowSpace] = dict.fromkeys(early, own)
    for root in stored(fusion):
        code = [root, *_behind(fusion, root)]
        space = own if root in early else _space(fusion, root, code, axes, own)
        if is_turned and space.is_along:
            space = RowSpace(space.kept, space.walk, is_own=False)
        for tv in code:
            if known.setdefault(tv, space) != space:
                raise refuse(fusion, "scan", f"{tv.name} has the rows of {root.name}, and those of others in another order", SEVERAL)
            if not space.is_own:
                others[tv] = space
    shared = {
        r.tensor
        for e in needed(fusion)
        if has_code(fusion, e)
        for r in storage_reads(fusion, e)
        if isinstance(fusion.definition(r.tensor), Scan) and (e.output in others or not is_aligned(r, e.output))
    }
    return ScanSpaces(axis, axes, own, others, frozenset(shared), beside)


def _are_alike(a: TensorView, b: TensorView) -> bool:
    return len(a.root) == len(b.root) and all(x.extent is y.extent for x, y in zip(a.root, b.root, strict=True))


def _behind(fusion: Fusion, tv: TensorView) -> list[TensorView]:
    """The ancestors of a tensor up to scans, these and inputs left out."""
    found: dict[TensorView, None] = {}
    stack = [tv]
    while stack:
        definition = fusion.definition(stack.pop())
        for read in () if definition is None else storage_reads(fusion, definition):
            p = read.tensor
            if not p.is_input and p not in found and not isinstance(fusion.definition(p), Scan):
                found[p] = None
                stack.append(p)
    return list(found)


def _space(fusion: Fusion, root: TensorView, code: list[TensorView], axes: tuple[Axis, ...], own: RowSpace) -> RowSpace:
    """The space of an output and of the code that it alone needs. Raises :class:`UnsupportedError`."""
    reads = [r for tv in code if (e := fusion.definition(tv)) is not None for r in storage_reads(fusion, e)]
    found = {_kept(read, root, axes, own) for read in reads if isinstance(fusion.definition(read.tensor), Scan)}
    if not found and len(root.root) == len(axes) and all(a.extent is b.extent for a, b in zip(root.root, axes, strict=True)):
        return own
    kept = next(iter(found), None)
    walks = [k for k in range(len(root.root)) if kept is not None and k not in kept]
    if kept is None or len(found) > 1 or len(walks) > 1:
        raise refuse(fusion, "scan", f"{root.name} has other rows than the scans", SEVERAL)
    walk = walks[0] if walks else None
    is_own = kept == own.kept and walk == own.walk and walk is not None and root.root[walk].extent is axes[walk].extent
    return own if is_own else RowSpace(kept, walk, is_own=False)


def _kept(read: Read, reader: TensorView, axes: tuple[Axis, ...], own: RowSpace) -> tuple[int, ...] | None:
    """The positions of the reader's axes at whose indices it reads rows; ``None`` if it reads others."""
    found = [iteration_position(read.index[k]) for k in own.kept]
    positions = tuple(k for k in found if k is not None)
    if not len(positions) == len(found) == len(set(positions)):
        return None
    return positions if all(reader.root[p].extent is axes[k].extent for p, k in zip(positions, own.kept, strict=True)) else None

"""``tf.horizontal``: independent fusions as one kernel, each with its own schedule.

Each fusion becomes a member of a horizontal group on BIDx: it gets a range of blocks of its own, where it runs as it would alone. All blocks have
the maximum that a member needs: of threads (a member with fewer guards off the rest), of Shared memory (members of different blocks overlay
theirs), of registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import lcm
from typing import cast

from taskfuse.errors import FusionError, UnsupportedError, shown
from taskfuse.ir.assignment import assign
from taskfuse.ir.dims import Dim
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Const, Expr, Sym, minimum, substitute, sym
from taskfuse.ir.storage import has_code
from taskfuse.ir.tasks import Node, Task
from taskfuse.ir.tensor import Scalar, TensorView
from taskfuse.ir.types import ParallelType
from taskfuse.location import caller
from taskfuse.schedule.copy import Copied, Renaming, copy_fusion, embed
from taskfuse.schedulers.horizontal_cost import HorizontalCost, Load, load
from taskfuse.schedulers.matmul import matmul
from taskfuse.schedulers.members import schedule_members
from taskfuse.schedulers.products import products
from taskfuse.schedulers.schedule import Sizes
from taskfuse.target import DEFAULT, Target, as_target


def horizontal(
    fusions: Sequence[Fusion],
    *,
    name: str = "horizontal",
    shared: Iterable[str] = (),
    sizes: Mapping[str, int] | None = None,
    force: bool = False,
    target: Target = DEFAULT,
) -> Fusion:
    """Join independent fusions into one, side by side on ``BIDx``; matrix products as one list of tiles that all blocks walk.

    The fusions are copied. If none has a schedule and :func:`taskfuse.schedulers.products` takes them together, it schedules them. Otherwise each gets a
    range of blocks. Fusions without a schedule get one by :func:`taskfuse.schedulers.auto`, with parameters for a common block shape; the
    others keep theirs. If all ask for it, :meth:`Fusion.resident_blocks` is set so that each keeps the registers that it has alone. A name (of a
    tensor, scalar, dimension, task or group) that only one fusion has stays; one that several have is prefixed with the name of its fusion:
    ``softmax_x``. Arguments and outputs are in the order of the fusions; a shared input has the place that the first fusion gives it.

    Args:
        fusions: two or more; they are not changed.
        name: the name of the new fusion.
        shared: names of inputs, scalars and dimensions that mean one thing in all fusions that have them. Dimensions of a shared input that
            denote the same axis become one, whatever their names.
        sizes: values of dimensions, by their names in the new fusion, for cost models; by default 4096, clamped to the known bounds.
        force: join even if the cost model expects no gain.
        target: the GPU to schedule for.

    Returns:
        A fusion like any other: it can be lowered, compiled, proved, simulated, and scheduled further.

    Raises:
        FusionError: fewer than two fusions, shared names that do not agree, or no expected gain (see :func:`horizontal_cost`).
        UnsupportedError: no scheduler makes one kernel of a fusion without a schedule, or ``sizes`` has a name that is not a dimension.
        TaskError, ScheduleError, LoweringError: a member cannot be lowered by itself.
    """
    shared = _names(name, shared)
    listed = _listed(fusions, name, shared, sizes, target)
    members, expected = listed or _members(fusions, name, shared, sizes, target)
    if not (force or expected.pays):
        raise FusionError(
            fusion=name,
            reason="side by side its members are not expected to be faster than one after another",
            notes=tuple(expected.explain().splitlines()),
            help="leave out the member that costs the others most, give it fewer threads, registers or bytes of Shared memory, or force=True",
            location=caller(),
        )
    if isinstance(members, Fusion):
        return members
    joined = _FusionJoin(members, name, shared).run()
    joined.resident_blocks(expected.joint.residents)
    return joined


def side_by_side(fusions: Sequence[Fusion], name: str, shared: Iterable[str]) -> Fusion:
    """Scheduled fusions, each of which can be lowered, joined as :func:`horizontal` joins them with ``force=True``. Raises :class:`FusionError` like that."""
    if all(f.residents > 1 for f in fusions):
        return horizontal(fusions, name=name, shared=shared, force=True)
    return _FusionJoin(fusions, name, _names(name, shared)).run()  # beside a member that asks for one resident block no more fit: no estimate is needed


def horizontal_cost(
    fusions: Sequence[Fusion], *, name: str = "horizontal", shared: Iterable[str] = (), sizes: Mapping[str, int] | None = None, target: Target = DEFAULT
) -> HorizontalCost:
    """The cost model of :func:`horizontal`: microseconds of the fusions alone and joined. Raises the same errors, except the one for lack of gain."""
    return (_listed(fusions, name, _names(name, shared), sizes, target) or _members(fusions, name, shared, sizes, target))[1]


def _listed(
    fusions: Sequence[Fusion], name: str, shared: tuple[str, ...], sizes: Mapping[str, int] | None, target: Target
) -> tuple[Fusion, HorizontalCost] | None:
    """Matrix products on one list of tiles, and their expected cost; ``None`` for other fusions."""
    target = as_target(target)
    join = _FusionJoin(fusions, name, shared)
    if any(f.has_schedule for f in join.fusions):
        return None
    joined = join.unscheduled()
    try:
        chosen = products(joined, sizes=sizes, target=target)
    except UnsupportedError:
        return None
    extents = _FusionJoin(fusions, name, shared).extents(sizes, target)
    loads: list[Load] = []
    alone: list[float] = []
    for member, fusion in join.members.items():
        copy, _ = copy_fusion(fusion)
        alone.append(matmul(copy, sizes=extents[member], target=target).us)
        loads.append(load(member, copy, extents[member], target))
    return joined, HorizontalCost(tuple(loads), load(name, joined, Sizes(joined, sizes, target).values, target), tuple(alone), chosen.us)


def _members(
    fusions: Sequence[Fusion], name: str, shared: Iterable[str], sizes: Mapping[str, int] | None, target: Target
) -> tuple[list[Fusion], HorizontalCost]:
    """The fusions with schedules, and their expected cost; ``sizes`` has the names of the joined fusion."""
    target = as_target(target)
    joined = _FusionJoin(fusions, name, _names(name, shared))
    return schedule_members(name, joined.members, joined.extents(sizes, target), target)


def _names(fusion: str, shared: object) -> tuple[str, ...]:
    """The names in ``shared``, which may be an iterator. Raises :class:`FusionError` unless it is a sequence of names."""
    if isinstance(shared, str) or not isinstance(shared, Iterable):
        help = f"write shared=['{shared}']" if isinstance(shared, str) else "give names in a list"
        raise FusionError(fusion=fusion, reason=f"shared is {shown(shared)}, not a sequence of names", help=help, location=caller())
    return tuple(map(str, cast("Iterable[object]", shared)))


class _Names:
    """Names that are taken: the first fusion to use one alone keeps it."""

    def __init__(self, used: Iterable[Iterable[str]], taken: Iterable[str] = ()) -> None:
        self._uses = Counter(name for names in used for name in set(names))
        self._taken = set(taken)

    def give(self, member: str, name: str) -> str:
        """The name in the new fusion of ``name`` in ``member``."""
        free = name if self._uses[name] < 2 else f"{member}_{name}"
        number = 1
        while free in self._taken or (free != name and self._uses[free]):
            number += 1
            free = f"{member}_{name}_{number}"
        self._taken.add(free)
        return free


class _FusionJoin:
    """One call in progress."""

    def __init__(self, fusions: object, name: str, shared: Iterable[str]) -> None:
        self.name = name
        self.shared = dict.fromkeys(shared)
        self.fusions: list[Fusion] = []
        if not isinstance(fusions, Iterable):
            raise self._error(f"a {type(fusions).__name__} is not a sequence of fusions", "give two or more in a list")
        for given in cast("Iterable[object]", fusions):
            if not isinstance(given, Fusion):
                raise self._error(f"{shown(given)} is not a fusion", "give fusions, with or without schedules")
            self.fusions.append(given)
        self.members = dict(zip(_member_names(self.fusions), self.fusions, strict=True))
        if len(self.fusions) < 2:
            raise self._error(f"{len(self.fusions)} fusion{'s' * (len(self.fusions) != 1)} given", "give two or more: they run side by side")
        for member, fusion in self.members.items():
            if not any(has_code(fusion, e) for e in fusion.exprs()):
                raise self._error(f"{member} computes nothing", "leave it out")
        self._check_shared()
        self.fusion = Fusion(name)
        self._values = _Names((_values(f) for f in self.fusions), self.shared)
        self._nodes = _Names(([n.name for n in f.tasks.nodes] for f in self.fusions), ("root",))
        self._rings = _Names(_rings(f) for f in self.fusions)
        self._inputs: dict[str, TensorView | Scalar] = {}

    def _error(self, reason: str, help: str, notes: tuple[str, ...] = ()) -> FusionError:
        return FusionError(fusion=self.name, reason=reason, notes=notes, help=help, location=caller())

    def _check_shared(self) -> None:
        for name in self.shared:
            holders = {f.name: kind for f in self.fusions if (kind := _kind(f, name)) is not None}
            count = sum(_kind(f, name) is not None for f in self.fusions)
            if count < 2:
                where = f"only {next(iter(holders))} has" if holders else "no fusion has"
                raise self._error(f"'{name}' is shared, but {where} an input, scalar or dimension of that name", "share names that two or more fusions have")
            if len(set(holders.values())) > 1:
                raise self._error(
                    f"'{name}' is shared, but its definitions differ in kind", "give them different names", tuple(f"{f}: {kind}" for f, kind in holders.items())
                )

    def run(self) -> Fusion:
        """The new fusion."""
        tops: list[Node] = []

        def build() -> None:
            for member, fusion in self.members.items():
                tops.append(self._top(member, fusion, self._embed(member, fusion, self._symbols(member, fusion))))

        self.fusion.tasks.rebuild(build)
        self.fusion.group(tops, self._nodes.give(self.name, "members")).parallelize(ParallelType.BIDx)
        return self.fusion

    def unscheduled(self) -> Fusion:
        """The new fusion, without tasks."""
        for member, fusion in self.members.items():
            self._embed(member, fusion, self._symbols(member, fusion))
        return self.fusion

    def extents(self, sizes: Mapping[str, int] | None, target: Target) -> dict[str, dict[str, int]]:
        """Values of the dimensions of each member; ``sizes`` has the names of the new fusion."""
        found: dict[str, dict[str, Expr]] = {}
        for member, fusion in self.members.items():
            found[member] = self._symbols(member, fusion)
            self._embed(member, fusion, found[member])
        extent = Sizes(self.fusion, sizes, target)
        return {member: {dim: extent(e) for dim, e in symbols.items()} for member, symbols in found.items()}

    # -- symbols and inputs -----------------------------------------------------------------------------------------------------------

    def _symbols(self, member: str, fusion: Fusion) -> dict[str, Expr]:
        """What the dimensions of a member are in the new fusion, which knows their facts then."""
        found: dict[str, Expr] = {name: sym(name) for name in fusion.dims if name in self.shared}
        for tv in fusion.inputs:
            given = self._inputs.get(tv.name)
            if isinstance(given, TensorView):
                self._unify(member, tv, given, found)
        for name in fusion.dims:
            if name not in found:
                found[name] = sym(self._values.give(member, name))
        for name, dim in fusion.dims.items():
            self._add_facts(member, dim, found[name], found)
        return found

    def _unify(self, member: str, tv: TensorView, given: TensorView, symbols: dict[str, Expr]) -> None:
        """Let the dimensions of a shared input be those that the first fusion gives it."""
        if tv.dtype is not given.dtype or tv.ndim != given.ndim:
            raise self._disagree(member, tv, given)
        for own, extent in zip(tv.shape, given.shape, strict=True):
            if isinstance(own, Sym) and own.name not in symbols:
                symbols[own.name] = extent
        for own, extent in zip(tv.shape, given.shape, strict=True):
            if not own.free <= symbols.keys() or substitute(own, symbols) is not extent:
                raise self._disagree(member, tv, given)

    def _disagree(self, member: str, tv: TensorView, given: TensorView) -> FusionError:
        return self._error(f"input '{tv.name}' is shared, but not the same in all fusions", "give them different names", (f"so far {given}", f"{member}: {tv}"))

    def _add_facts(self, member: str, dim: Dim, extent: Expr, symbols: Mapping[str, Expr]) -> None:
        """What a member knows of a dimension holds for what it is in the new fusion."""
        match extent:
            case Sym(name=name):
                known = self.fusion.dims.get(name, Dim(name, min=dim.min))
                limits = [m for m in (known.max, dim.max) if m is not None]
                bounds = [d.bound for d in (known, dim.with_symbols(symbols)) if d.bound is not None]
                bound = minimum(*bounds) if bounds else None
                joint = Dim(name, max(known.min, dim.min), min(limits, default=None), lcm(known.multiple_of, dim.multiple_of), bound)
                if joint.max is not None and joint.max < joint.min:
                    raise self._error(
                        f"no value of {name} suits all fusions", "share no dimension that they know different facts of", (str(known), f"{member}: {dim}")
                    )
                self.fusion.dims[name] = joint
            case Const(value=value) if not dim.admits(value, {}):
                raise self._error(f"{dim.name} of {member} is {value} by a shared input", "share no input whose extents it does not take", (str(dim),))
            case _:
                pass

    # -- the copy ---------------------------------------------------------------------------------------------------------------------

    def _embed(self, member: str, fusion: Fusion, symbols: Mapping[str, Expr]) -> Copied:
        """Copy a member."""
        values = {v.name: v.name if v.name in self._inputs else self._give(member, v) for v in (*fusion.tensors(), *fusion.scalars)}
        nodes = {n.name: self._nodes.give(member, n.name) for n in fusion.tasks.nodes}
        rings = {ring: self._rings.give(member, ring) for ring in _rings(fusion)}
        given = {name: v for name, v in self._inputs.items() if _kind(fusion, name) is not None}
        copied = embed(fusion, self.fusion, Renaming(values, {n: e for n, e in symbols.items() if sym(n) is not e}, nodes, rings, given))
        for v in (*(copied.tensors[tv] for tv in fusion.inputs), *self.fusion.scalars):
            if v.name in self.shared:
                self._inputs[v.name] = v
        return copied

    def _top(self, member: str, fusion: Fusion, copied: Copied) -> Node:
        """The node of a copied member that holds all that it computes."""
        tops = [copied.nodes[n] for n in fusion.tasks.root.members]
        pieces = _unclaimed(fusion)
        for k, tensors in enumerate(pieces):
            piece = member if len(pieces) == 1 and not tops else f"{member}_t0" + (f"_{k}" if k else "")
            tops.append(self.fusion.task([copied.tensors[tv] for tv in tensors], self._nodes.give(member, piece)))
        return tops[0] if len(tops) == 1 else self.fusion.group(tops, self._nodes.give(member, member))

    def _give(self, member: str, value: TensorView | Scalar) -> str:
        return value.name if value.name in self.shared and _kind(value.fusion, value.name) is not None else self._values.give(member, value.name)


def _member_names(fusions: Sequence[Fusion]) -> list[str]:
    """A name for each fusion: its own, with a number if several have it."""
    total, used = Counter(f.name for f in fusions), Counter[str]()
    taken = set(total)
    names: list[str] = []
    for f in fusions:
        name = f.name
        while total[f.name] > 1 and name in taken:
            used[f.name] += 1
            name = f"{f.name}_{used[f.name]}"
        taken.add(name)
        names.append(name)
    return names


def _values(fusion: Fusion) -> list[str]:
    """All names that a kernel's text has for a fusion's values and extents."""
    return [*(tv.name for tv in fusion.tensors()), *(s.name for s in fusion.scalars), *fusion.dims]


def _rings(fusion: Fusion) -> list[str]:
    """The names of the rings that tensors of a fusion have together."""
    return list(dict.fromkeys(tv.schedule.ring for tv in fusion.tensors() if tv.schedule.ring))


def _kind(fusion: Fusion, name: str) -> str | None:
    """What a fusion calls by a name, of what can be shared."""
    if name in fusion.dims:
        return "dimension"
    if any(tv.name == name for tv in fusion.inputs):
        return "input"
    return "scalar" if any(s.name == name for s in fusion.scalars) else None


def _unclaimed(fusion: Fusion) -> list[list[TensorView]]:
    """The tensors that lie in no task, as the tasks that lowering would make of them."""
    claimed = set(fusion.tasks.nodes)
    code = {e.output for e in fusion.exprs() if has_code(fusion, e)}
    pieces: dict[Task, list[TensorView]] = {}
    for tv, task in assign(fusion).items():
        if task not in claimed and tv in code:
            pieces.setdefault(task, []).append(tv)
    return list(pieces.values())

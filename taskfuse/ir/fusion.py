"""The fusion: the math graph in single assignment, with its inputs, outputs, symbols and task tree."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, cast

from numpy.typing import NDArray

from taskfuse.dtypes import DType
from taskfuse.errors import FusionError, UnsupportedError, shown
from taskfuse.ir.axes import Axis, AxisKind
from taskfuse.ir.calls import partitioner, readers, scheduling
from taskfuse.ir.connectivity import producers_first
from taskfuse.ir.dims import Dim, facts_of, with_facts
from taskfuse.ir.expr import MathExpr, View, Written, reads
from taskfuse.ir.identity import among, place_of
from taskfuse.ir.partition import Partition
from taskfuse.ir.scalar import Expr, Facts, IntLike, shape_text, sym
from taskfuse.ir.signatures import checked
from taskfuse.ir.strides import declared_strides, may_be_equal
from taskfuse.ir.tables import TableRange
from taskfuse.ir.task_tree import TaskTree
from taskfuse.ir.tasks import Group, Node, Task
from taskfuse.ir.tensor import Scalar, TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import Location, caller
from taskfuse.target import MAX_RESIDENT

if TYPE_CHECKING:
    import networkx as nx

    from taskfuse.ir.values import Values


_current: ContextVar[Fusion | None] = ContextVar("taskfuse_fusion", default=None)


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """An array that a call returns.

    Attributes:
        tensor: an output; or an input, whose array is returned.
        strides: of its array, in elements; ``None``: row-major without gaps.
        into: the input that it is written into, or the view of one; ``None``: a new array.
    """

    tensor: TensorView
    strides: tuple[Expr, ...] | None = None
    into: TensorView | None = None

    @property
    def is_plain(self) -> bool:
        """True if it is a new row-major array."""
        return self.strides is None and self.into is None and not self.tensor.is_input


class Fusion:
    """A graph of tensors. Use it as a context manager to make inputs and constants in it.

    Args:
        name: name of the fusion and of its kernel.

    Attributes:
        outputs: the tensors that kernels store, each once.
        results: what calls return, made of outputs and inputs.
        strides: of inputs for which they are declared.
        tables: inputs whose elements may stand in index expressions, with their ranges.
        integers: the dimensions that are arguments of a call.
        residents: see :meth:`resident_blocks`.
        derived: what others found of the fusion, by who found it, kept as long as the fusion is: they compare what they found it of.
    """

    def __init__(self, name: str = "fusion") -> None:
        if not isinstance(cast("object", name), str):
            raise FusionError(fusion=name, reason=f"its name is of type {type(name).__name__}", help="use a string", location=caller())
        self.name = name
        self.inputs: list[TensorView] = []
        self.outputs: list[TensorView] = []
        self.results: list[Result] = []
        self.strides: dict[TensorView, tuple[Expr, ...]] = {}
        self.tables: dict[TensorView, TableRange] = {}
        self.scalars: list[Scalar] = []
        self.dims: dict[str, Dim] = {}
        self.integers: list[str] = []
        self.residents = 1
        self.derived: dict[str, object] = {}
        self.tasks = TaskTree(self)
        self._tensors: dict[str, TensorView] = {}
        self._definitions: dict[TensorView, MathExpr] = {}
        self._written: dict[TensorView, Written] = {}
        self._replaced: dict[TensorView, Location | None] = {}
        self._exprs: tuple[MathExpr, ...] | None = None
        self._uses: dict[TensorView, list[TensorView]] = {}
        self._owner: dict[TensorView, TensorView] = {}
        self._call: list[list[TensorView]] = []
        self._tokens: list[Token[Fusion | None]] = []

    def __enter__(self) -> Self:
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._tokens.pop())

    @staticmethod
    def current() -> Fusion:
        """The fusion of the enclosing ``with``. Raises :class:`FusionError` outside one."""
        fusion = _current.get()
        if fusion is None:
            help = "make inputs and constants inside `with tf.Fusion(...) as fusion:`"
            raise FusionError(fusion="?", reason="no fusion is open here", help=help, location=caller())
        return fusion

    # -- building -------------------------------------------------------------------------------------------------------------------

    def add_dim(self, dim: Dim) -> None:
        """Record facts about a symbol. Raises :class:`FusionError` if other facts are known already."""
        if any(tv.name == dim.name for tv in self.tables):
            raise FusionError(fusion=self.name, reason=f"'{dim.name}' is a table, not a dimension", help="give the dimension another name", location=caller())
        self.dims[dim.name] = with_facts(self.name, self.dims, dim)

    def add_integer(self, dim: Dim) -> Expr:
        """A dimension that is an argument of calls. Raises :class:`FusionError` if its name is taken, or known with other facts."""
        if dim.name in self.integers or any(x.name == dim.name for x in (*self.inputs, *self.scalars)):
            raise FusionError(fusion=self.name, reason=f"there is already an argument named '{dim.name}'", location=caller())
        self.add_dim(dim)
        self.integers.append(dim.name)
        return sym(dim.name)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arguments of a call, in order: inputs, run-time scalars, integers."""
        return (*(tv.name for tv in self.inputs), *(s.name for s in self.scalars), *self.integers)

    def facts(self) -> Facts:
        """The facts about the symbols, for the simplifier."""
        return facts_of(self.dims.values())

    def new_tensor(
        self,
        root: Sequence[Axis],
        dtype: DType,
        *,
        logical: Sequence[Axis] | None = None,
        name: str | None = None,
        location: Location | None = None,
        origin: TensorView | None = None,
        schedule: TensorSchedule | None = None,
    ) -> TensorView:
        """A tensor without a definition yet. Its logical domain is ``root`` without reduction axes, and its schedule empty, unless given."""
        # numbers and names depend on the fusion, not on its history: a fusion parsed from its text continues with the same ones
        id = 1 + next((tv.id for tv in reversed(self._tensors.values())), -1)
        if name is None:
            name = self._free_name("tv", id)
        elif self._is_taken(self._checked_name(name)):
            what = "tensor" if name in self._tensors else "scalar"
            raise FusionError(fusion=self.name, reason=f"there is already a {what} named '{name}'", location=caller())
        shown = tuple(a for a in root if a.kind is AxisKind.ITERATION) if logical is None else tuple(logical)
        tv = TensorView(self, id, name, dtype, tuple(root), shown, location or caller(), origin, schedule)
        self._tensors[name] = tv
        self._uses[tv] = []
        if self._call:
            self._call[-1].append(tv)
        return tv

    def define(self, expr: MathExpr) -> TensorView:
        """Add ``expr`` (or replace its output's definition). Returns the output."""
        tv = expr.output
        old = self._definitions.get(tv)
        if tv not in self._written:
            self._written[tv] = Written(expr, tv.root, tv.logical, tv.dtype)
        elif tv not in self._replaced:
            self._replaced[tv] = caller()
        if old is not None:
            for read in reads(old):
                if among(tv, self._uses[read.tensor]):
                    del self._uses[read.tensor][place_of(tv, self._uses[read.tensor])]
        self._definitions[tv] = expr
        self._exprs = None
        for read in reads(expr):
            if not among(tv, self._uses[read.tensor]):
                self._uses[read.tensor].append(tv)
        return tv

    def written(self, tv: TensorView) -> Written | None:
        """The first definition of ``tv``, before scheduling calls replaced it, even of a tensor that was removed. ``None`` for an input."""
        return self._written.get(tv)

    def replaced_at(self, tv: TensorView) -> Location | None:
        """The line of the first call that replaced the definition of ``tv``; ``None`` if none did."""
        return self._replaced.get(tv)

    def set_written(self, tv: TensorView, written: Written, replaced: Location | None) -> None:
        """Record the first definition of ``tv``, and where it was replaced, from the fusion that this one is a copy of."""
        self._written[tv] = written
        if replaced is not None:
            self._replaced[tv] = replaced

    def restate(self) -> None:
        """Take the present definitions as the original ones: for other math that the caller asked for, such as wider numbers."""
        self._written = {tv: Written(expr, tv.root, tv.logical, tv.dtype) for tv, expr in self._definitions.items()}
        self._replaced.clear()

    def remove_unread(self, tensors: Sequence[TensorView]) -> None:
        """Remove those of ``tensors`` without readers, then the tensors that only they read, and so on; inputs, outputs and tensors of tasks stay."""
        stack, removed = list(tensors), set[TensorView]()
        while stack:
            tv = stack.pop()
            expr = self._definitions.get(tv)
            if expr is None or self._uses[tv] or among(tv, self.outputs) or tv.task is not None or any(r.into is tv for r in self.results):
                continue
            for read in reads(expr):
                if among(tv, self._uses[read.tensor]):
                    del self._uses[read.tensor][place_of(tv, self._uses[read.tensor])]
                stack.append(read.tensor)
            del self._definitions[tv], self._tensors[tv.name], self._uses[tv]
            removed.add(tv)
        if not removed:
            return
        self._owner = {x: owner for x, owner in self._owner.items() if x not in removed and owner not in removed}
        for x in self._tensors.values():
            while x.origin is not None and x.origin in removed:
                x.origin = x.origin.origin
        self._exprs = None
        self.tasks.changes += 1

    @contextmanager
    def call(self) -> Generator[None, None, None]:
        """One call of an op: tensors made inside belong to the task of the last one unless claimed."""
        made: list[TensorView] = []
        self._call.append(made)
        try:
            yield
        finally:
            self._call.pop()
        if made:
            for tv in made[:-1]:
                self._owner.setdefault(tv, made[-1])
            if self._call:
                self._call[-1] += made

    def add_input(self, tv: TensorView) -> TensorView:
        """Make a tensor without a definition an input."""
        self.inputs.append(tv)
        return tv

    @checked
    def add_output(self, *tensors: object, name: str | None = None, strides: Sequence[IntLike | str] | None = None, into: TensorView | None = None) -> None:
        """Add tensors to the results of calls, in this order; ``name``, ``strides`` and ``into`` need a single tensor.

        An input is returned as the caller's array, and a tensor that is added twice as one array, as in torch, without a copy.

        Args:
            strides: of the array of a new output, in elements: numbers, or expressions of dimensions. By default it is row-major without gaps.
            into: an input, or a strided view of one: the output is written into the caller's array. Reads of the input return its values from before
                the call.

        Raises:
            FusionError: a tensor belongs to another fusion; the name is taken; the strides do not fit the shape, or let elements overlap; ``into`` is neither
                an input nor a view of one, or has another shape or dtype; an input is returned that another result is written into.
        """
        made = [self._check_output(tv) for tv in tensors]
        for what, given in {"name": name, "strides": strides, "into": into}.items():
            if given is not None and len(made) != 1:
                help = "name each: x.named('y')" if what == "name" else f"call add_output once for each, with {what}="
                reason = f"one name, '{name}', for {len(made)} outputs" if what == "name" else f"{what}= for {len(made)} outputs"
                raise FusionError(fusion=self.name, reason=reason, help=help, location=caller())
        if name is not None:
            made[0].named(name)
        for tv in made:
            known = tv.is_input or among(tv, self.outputs)
            if known and (strides is not None or into is not None):
                reason = f"{tv.name} is {'an input' if tv.is_input else 'an output already'}, and has its array"
                raise FusionError(fusion=self.name, reason=reason, help=f"return tf.copy({tv.name}) beside it", location=caller())
            wanted = None if strides is None else declared_strides(self.name, tv.name, tv.shape, strides, self.dims, self.facts())
            if into is not None:
                self._check_into(tv, into, wanted)
            self._check_returned(tv, into)
            if not known:
                self.outputs.append(tv)
            self.results.append(Result(tv, wanted, into))

    def _check_output(self, tv: object) -> TensorView:
        if not isinstance(tv, TensorView):
            raise FusionError(fusion=self.name, reason=f"{shown(tv)} is not a tensor", help="give tensors: add_output(a, b)", location=caller())
        if tv.fusion is not self:
            raise FusionError(fusion=self.name, reason=f"{tv.name} belongs to fusion '{tv.fusion.name}'", location=caller())
        return tv

    @checked
    def set_strides(self, tv: TensorView, strides: Sequence[IntLike | str]) -> None:
        """Declare the strides, in elements, of the arrays that calls pass for an input. Raises :class:`FusionError` if they do not fit its shape."""
        self.strides[tv] = declared_strides(self.name, tv.name, tv.shape, strides, self.dims, self.facts())

    def _check_into(self, tv: TensorView, into: object, strides: tuple[Expr, ...] | None) -> None:
        reason, help = "", "give an input, or a slice, reshape or permutation of one"
        if not isinstance(into, TensorView) or into.fusion is not self:
            reason = f"{shown(into)} is not a tensor of it"
        elif into.dtype is not tv.dtype or not (may_be_equal(tv.shape, into.shape, self.facts()) if not into.is_input else tv.shape == into.shape):
            reason = f"{tv.name} is {tv.dtype}{shape_text(tv.shape)}, and {into.name} is {into.dtype}{shape_text(into.shape)}"
            help = f"cast it, or write it into a slice of the input: into={into.name}[...]"
        elif strides is not None:
            reason, help = f"{tv.name} is written into {into.name}, which has its strides", "leave out strides="
        elif (base := readers().base(self, into)) is None:
            reason = f"{into.name} is neither an input nor a view of one that has strides"
        elif base in self.tables:
            reason, help = f"{into.name} is a table, which expressions read while the kernel runs", "return the result in an array of its own"
        elif any(r.into is not None and readers().base(self, r.into) is base for r in self.results):
            reason, help = f"another output is written into the array of {into.name}", "write one output into an array"
        if reason:
            raise FusionError(fusion=self.name, reason=f"{tv.name} cannot be written in place: {reason}", help=help, location=caller())

    def _check_returned(self, tv: TensorView, into: TensorView | None) -> None:
        """An input is returned as the caller's array, which then holds what a result has put there: it is not both."""
        added = Result(tv, None, into)
        others = [(r, added) for r in self.results] + [(added, r) for r in (*self.results, added) if into is not None]
        for r, returned in others:
            base = None if r.into is None else readers().base(self, r.into)
            if base is not None and base is returned.tensor:
                reason = f"{base.name} is returned as it is, and {r.tensor.name} is written into its array"
                help = f"return tf.copy({base.name}) for its old content; the caller has the array with the new one"
                raise FusionError(fusion=self.name, reason=reason, help=help, location=caller())

    @checked
    def rename(self, tv: TensorView, name: object) -> None:
        """Give a tensor another name. Raises :class:`FusionError` if the name is taken or invalid."""
        name = self._checked_name(name)
        if name == tv.name:
            return
        if self._is_taken(name):
            raise FusionError(fusion=self.name, reason=f"there is already a value named '{name}'", location=caller())
        if tv in self.tables:
            reason = f"the name of table '{tv.name}' stands in index expressions"
            raise FusionError(fusion=self.name, reason=reason, help=f"call it so from the start: tf.table('{name}', ...)", location=caller())
        self._tensors = {name if x is tv else key: x for key, x in self._tensors.items()}
        tv.set_name(name)

    def add_scalar(self, name: str | None, dtype: DType, promotes: bool = True) -> Scalar:
        """A run-time scalar."""
        id = len(self.scalars)
        if name is not None and self._is_taken(self._checked_name(name)):
            raise FusionError(fusion=self.name, reason=f"there is already a value named '{name}'", location=caller())
        scalar = Scalar(self, id, self._free_name("s", id) if name is None else name, dtype, caller(), promotes)
        self.scalars.append(scalar)
        return scalar

    def _checked_name(self, name: object) -> str:
        if not isinstance(name, str) or not name:
            raise FusionError(fusion=self.name, reason=f"{shown(name)} is not a name", help="use text, such as 'hidden'", location=caller())
        return name

    def _is_taken(self, name: str) -> bool:
        return name in self._tensors or name in self.integers or any(s.name == name for s in self.scalars)

    def _free_name(self, prefix: str, number: int) -> str:
        while self._is_taken(f"{prefix}{number}"):
            number += 1
        return f"{prefix}{number}"

    # -- the graph ------------------------------------------------------------------------------------------------------------------

    def definition(self, tv: TensorView) -> MathExpr | None:
        """The expression that makes ``tv``."""
        return self._definitions.get(tv)

    def uses(self, tv: TensorView) -> tuple[MathExpr, ...]:
        """The expressions that read ``tv``, in the order their outputs were made."""
        return tuple(self._definitions[u] for u in sorted(self._uses[tv], key=lambda u: u.id))

    @checked
    def tensor(self, name: str) -> TensorView:
        """The tensor with a name. Raises :class:`FusionError` if none exists."""
        if name not in self._tensors:
            raise FusionError(fusion=self.name, reason=f"there is no tensor named '{name}'", location=caller())
        return self._tensors[name]

    def tensors(self) -> tuple[TensorView, ...]:
        """Every tensor, in the order they were made, inputs included."""
        return tuple(self._tensors.values())

    def owner(self, tv: TensorView) -> TensorView | None:
        """The result of the call that made ``tv`` as an intermediate tensor, or ``None``."""
        return self._owner.get(tv)

    def set_owner(self, tv: TensorView, owner: TensorView) -> None:
        """Let ``tv`` follow the task of ``owner`` unless claimed."""
        self._owner[tv] = owner
        self.tasks.changes += 1

    def exprs(self) -> tuple[MathExpr, ...]:
        """Every expression, producers first, else in the order their outputs were made."""
        if self._exprs is None:
            made = self._definitions
            order = producers_first(self._tensors.values(), lambda tv: [r.tensor for r in reads(made[tv]) if r.tensor in made] if tv in made else [])
            self._exprs = tuple(made[tv] for tv in order if tv in made)
        return self._exprs

    def is_view(self, tv: TensorView) -> bool:
        """True if ``tv`` is a map without storage and code: defined by a view, not an output, claimed by no task, and given no memory."""
        return isinstance(self._definitions.get(tv), View) and not among(tv, self.outputs) and tv.schedule.memory is None and self.tasks.task_of(tv) is None

    # -- tasks and schedule ---------------------------------------------------------------------------------------------------------

    @checked
    def task(self, tensors: Sequence[TensorView], name: str | None = None) -> Task:
        """A task that claims ``tensors``. Raises :class:`TaskError` if one is claimed already, is an input, or convexity is lost."""
        return self.tasks.add_task(tensors, name)

    @checked
    def group(self, members: Sequence[Node], name: str | None = None) -> Group:
        """A group of tasks and groups. Raises :class:`TaskError` if a member has a parent already, or convexity is lost."""
        return self.tasks.add_group(members, name)

    def evaluate(self, *args: NDArray[Any] | float | int, values: Values | None = None, **named: Any) -> tuple[NDArray[Any], ...]:
        """Compute the math in NumPy, without the schedule; see :func:`taskfuse.ir.evaluate.evaluate`. ``named``: arguments by their names."""
        return readers().evaluate(self, args, named, {} if values is None else {"values": values})

    def __str__(self) -> str:
        return readers().text(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _parsed, (str(self),)

    @checked
    def draw(self, path: str | Path) -> None:
        """Write the graph to an SVG file: tensors in the boxes of their tasks and groups, an edge from each to its readers."""
        Path(path).write_text(readers().picture(self), encoding="utf-8")

    def graph(self) -> nx.DiGraph[str]:
        """The tensors and scalars as a networkx graph, an edge from each to its readers; see :func:`taskfuse.ir.graph.tensor_graph`."""
        return readers().graph(self)

    def task_graph(self) -> nx.DiGraph[str]:
        """See :meth:`TaskTree.graph`."""
        return readers().task_graph(self)

    @checked
    def partition(self, sizes: Mapping[str, int] | None = None) -> Partition:
        """Propose tasks and groups, with the estimate behind each group: ``explain()`` shows them, ``code`` is Python, ``apply()`` makes them.

        Args:
            sizes: values of dimensions for the estimate; by default 4096, clamped to the known bounds.

        Raises:
            TaskError: there are tasks already, or nothing is computed.
            UnsupportedError: ``sizes`` has a name that is not a dimension.
        """
        return partitioner()(self, sizes)

    @property
    def has_schedule(self) -> bool:
        """True if a scheduling call was made on it, on its tensors or on its tasks."""
        if self.tasks.nodes or self.residents > 1:
            return True
        schedules = [tv.schedule for tv in self.tensors()]
        return any(s.transforms or s.ptypes or s.inline or s.memory or s.allocation is not None or s.stages > 1 or s.atom for s in schedules)

    def check(self) -> None:
        """Check the laws of tasks and groups. Raises :class:`TaskError`."""
        self.tasks.check()

    @checked
    def order(self, tensors: Sequence[TensorView]) -> None:
        """Let the code of ``tensors`` come in this order wherever what they read, and the loops and tasks that they share, leave a choice.

        Without a choice of the caller's, tensors come in the order in which they were made. Where an asynchronous product is issued decides what
        runs while it does, and which values are in registers meanwhile.

        Raises:
            FusionError: one is given twice, is an input, or is of another fusion.
        """
        for k, tv in enumerate(tensors):
            if not isinstance(cast("object", tv), TensorView) or tv.fusion is not self or tv.is_input or among(tv, tensors[:k]):
                reason = f"{shown(tv)} is not a computed tensor of it, or is given twice"
                raise FusionError(fusion=self.name, reason=reason, help="give each tensor of which code is made once", location=caller())
        others = [tv for tv in self._tensors.values() if not among(tv, tensors)]
        first = min((tv.id for tv in tensors), default=0)
        ordered = [*(tv for tv in others if tv.id < first), *tensors, *(tv for tv in others if tv.id > first)]
        for tv, number in zip(ordered, sorted(tv.id for tv in ordered), strict=True):
            tv.id = number
        self._tensors = {tv.name: tv for tv in ordered}
        self._exprs = None
        self.tasks.changes += 1

    @checked
    def resident_blocks(self, count: object) -> None:
        """Bound the registers of a thread so that they allow ``count`` resident blocks per multiprocessor.

        More resident blocks hide more latency, for instance if blocks load and then wait at barriers. Values that do not fit the registers spill.
        Raises :class:`FusionError` unless ``count`` is 1 to 32.
        """
        number = count.__index__() if isinstance(count, SupportsIndex) else 0
        if not 1 <= number <= MAX_RESIDENT:
            raise FusionError(
                fusion=self.name, reason=f"{shown(count)} resident blocks of a multiprocessor", help=f"use 1 to {MAX_RESIDENT}", location=caller()
            )
        self.residents = number

    @checked
    def inline_at(self, tensors: Sequence[TensorView], position: int) -> None:
        """Inline tensors together: each shares the ``position`` outermost loops with every reader, see :meth:`TensorView.inline_at`.

        Only the order with all of them inlined must exist.
        """
        scheduling().inline_together(self, tensors, position)

    @checked
    def inline_most(self, tensors: Sequence[TensorView] | None = None) -> None:
        """Inline every tensor (or the given ones) as deep as is legal."""
        scheduling().inline_most(self, tensors)


def as_fusion(value: object, call: str) -> Fusion:
    """``value`` if it is a fusion. Raises :class:`UnsupportedError`, which names the call."""
    if not isinstance(value, Fusion):
        help = "give the fusion that it was defined in" if isinstance(value, TensorView) else "give a tf.Fusion"
        raise UnsupportedError(what=f"{call} of {shown(value)}", reason="it is not a fusion", help=help, location=caller())
    return value


def _parsed(text: str) -> Fusion:
    return readers().parse(text)

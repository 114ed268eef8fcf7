"""From nodes of a graph of ATen ops to a fusion.

A node is importable if a fusion of it alone can be made: there is no separate list of supported ops. The rules are in :mod:`taskfuse.torch.rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import getitem
from typing import Any, Self

import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from taskfuse.errors import TaskfuseError
from taskfuse.ir.combine import depends_on_order
from taskfuse.ir.expr import MathExpr, Update, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import eq, prove
from taskfuse.ir.tensor import TensorView
from taskfuse.ops import cast, copy, define_integer, define_scalar, define_tensor, full
from taskfuse.torch.copies import COPY
from taskfuse.torch.metadata import (
    SYMBOLIC,
    Meta,
    Quotient,
    Refused,
    has_rows,
    hints_of,
    integer,
    is_copied,
    members,
    meta_of,
    results,
    row_major,
    same_places,
    symbolic,
    symbols_of,
)
from taskfuse.torch.rules.attention import ATTENTION, GRADIENTS, STATES
from taskfuse.torch.rules.call import AtenCall, Made
from taskfuse.torch.rules.reductions import PRODUCTS
from taskfuse.torch.rules.table import INTO, rule_of
from taskfuse.torch.rules.windows import CONVOLUTIONS
from taskfuse.torch.worth import at_hints, times

WRAPPERS = frozenset({"aten", "prims"})

BY_SCHEDULE = frozenset((*ATTENTION, *GRADIENTS)) | CONVOLUTIONS
"""Ops whose expected times are those of schedules, not of rooflines."""

COPIED = BY_SCHEDULE | PRODUCTS
"""Ops whose schedules have the copy engine load inputs."""

ARITHMETIC = frozenset({"add", "sub", "rsub", "mul", "div"})
"""Ops that take quotients of extents as numbers, such as the correction of a variance."""

SLOWER = "expected times: "
"""The beginning of a reason that does not rule a fusion out, but says that it does not pay."""


@dataclass(frozen=True, slots=True)
class ImportedRegion:
    """A fusion of nodes, and what the graph passes to it.

    Attributes:
        fusion: the fusion.
        tensors: the nodes whose tensors are its inputs.
        numbers: the nodes whose tensors are numbers on the host: its run-time scalars.
        integers: the symbols that are its run-time integers.
        outputs: the nodes whose tensors are its outputs, in order.
        nodes: what it computes, views and constants included.
        restrided: by output, whether torch's strides differ from those that the fusion stores.
        hints: the symbols as they are in the call for which torch traces; without those that depend on data.
    """

    fusion: Fusion
    tensors: tuple[Node, ...]
    numbers: tuple[Node, ...]
    integers: tuple[str, ...]
    outputs: tuple[Node, ...]
    nodes: tuple[Node, ...]
    restrided: tuple[bool, ...]
    hints: Mapping[str, int]
    _text: list[str] = field(init=False, repr=False, compare=False, default_factory=list[str])

    @property
    def text(self) -> str:
        """The fusion as text, made once."""
        if not self._text:
            self._text.append(str(self.fusion))
        return self._text[0]

    @property
    def sizes(self) -> dict[str, int]:
        """The extents of the fusion in that call."""
        return {name: self.hints[name] for name in self.fusion.dims if name in self.hints}

    @property
    def typical(self) -> Fusion:
        """The fusion for the extents of the call for which torch traces: for expected times."""
        return at_hints(self.fusion, self.hints)


def name_of(node: Node) -> tuple[str, str]:
    """The name of the op of a node, and its overload. Raises :class:`Refused` for an op that is not ATen's."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or target.namespace not in WRAPPERS:
        raise Refused("it is not an op of ATen")
    return target._schema.name.split("::")[1], target._schema.overload_name or "default"


def outs_of(node: Node) -> list[Meta | None]:
    """torch's metadata of the results of a node; ``None`` for results without readers that no fusion has, such as states of random numbers."""
    read = _read(node)
    return [None if v is None else _meta(v, place in read) for place, v in enumerate(results(node))]


def _read(node: Node) -> set[int]:
    """Which results of a node are read."""
    if not isinstance(node.meta.get("val"), tuple | list):
        return {0}
    return {user.args[1] for user in node.users if user.target is getitem and user.users and isinstance(user.args[1], int)}


def _meta(value: Any, is_read: bool) -> Meta | None:
    try:
        return meta_of(value)
    except Refused:
        if is_read:
            raise
        return None


def made(node: Node, value_of: Callable[[Any], Any]) -> list[TensorView | None]:
    """The results of a node in the current fusion.

    Raises:
        Refused: there is no rule for the op, or not for its arguments.
        TaskfuseError: what taskfuse says of the math.
    """
    name, overload = name_of(node)
    rule = rule_of(name, overload)
    if rule is None:
        raise Refused("taskfuse has no such op")
    call = bound(node, name, overload, value_of)
    found: Made = rule(call)
    call.check_read()
    each = found if isinstance(found, tuple) else (found,)
    missing = [place for place in _read(node) if place >= len(each) or each[place] is None]
    if missing and results(node)[missing[0]] is not None:
        raise Refused(f"its result {missing[0]} is read")
    return [None if out is None or y is None else _checked(y, out) for y, out in zip(each, call.outs, strict=True)]


def bound(node: Node, name: str, overload: str, value_of: Callable[[Any], Any]) -> AtenCall:
    """The arguments of a node by the names of the schema."""
    given: dict[str, Any] = {}
    passed: set[str] = set()
    for place, argument in enumerate(node.target._schema.arguments):
        own = place < len(node.args) and not argument.kwarg_only
        value = node.args[place] if own else node.kwargs.get(argument.name, argument.default_value)
        if argument.name in STATES:
            given[argument.name] = None
            continue
        given[argument.name] = _value(value, value_of)
        if (own or argument.name in node.kwargs) and not _is_default(value, argument) and argument.name not in INTO:
            passed.add(argument.name)
    if name not in ARITHMETIC and any(isinstance(value, Quotient) for value in given.values()):
        raise Refused("a number is a quotient of extents")
    return AtenCall(name, overload, given, passed, outs_of(node), _read(node))


def _is_default(value: Any, argument: Any) -> bool:
    if isinstance(value, Node) or not argument.has_default_value():
        return False
    return value is argument.default_value or (type(value) is type(argument.default_value) and value == argument.default_value)


def _value(value: Any, value_of: Callable[[Any], Any]) -> Any:
    match value:
        case Node() | torch.SymInt() | torch.SymFloat():
            return value_of(value)
        case list() | tuple():
            return [_value(v, value_of) for v in members(value)]
        case complex():
            raise Refused("an argument is complex")
        case _:
            return value


def _checked(y: TensorView, out: Meta) -> TensorView:
    """A result in torch's dtype, if it has torch's shape."""
    facts = y.fusion.facts()
    if len(y.shape) != len(out.shape) or not all(a is b or prove(eq(a, b), facts) for a, b in zip(y.shape, out.shape, strict=True)):
        raise Refused(f"its shape comes out as {list(y.shape)}, not {list(out.shape)}")
    return y if y.dtype is out.dtype else cast(y, out.dtype)


def refusal(node: Node, known: dict[Any, str | None]) -> str | None:
    """The reason why a node alone cannot be imported; ``None`` if it can.

    Args:
        known: the answers so far, by op and arguments.
    """
    try:
        outs = outs_of(node)
        key = (node.target, _key(node.args), _key(tuple(node.kwargs.items())), tuple(outs), tuple(sorted(_read(node))))
        if key not in known:
            known[key] = _trial(node, outs)
        return known[key]
    except Refused as error:
        return str(error)


def _key(value: Any) -> Any:
    if isinstance(value, Node):
        val = value.meta.get("val")  # higher-order ops have none
        return meta_of(val) if isinstance(val, torch.Tensor) else symbolic(val) if isinstance(val, (int, *SYMBOLIC)) else val.__class__.__name__
    if isinstance(value, list | tuple):
        return tuple(map(_key, members(value)))
    if isinstance(value, SYMBOLIC):
        return symbolic(value)
    return value.__class__.__name__, value


def _trial(node: Node, outs: Sequence[Meta | None]) -> str | None:
    device = next((out.device for out in outs if out is not None), None)
    arguments = node.target._schema.arguments if isinstance(node.target, torch._ops.OpOverload) else ()
    unread = {value for value, argument in zip(node.args, arguments, strict=False) if argument.name in STATES}
    try:
        for arg in node.all_input_nodes:
            value = arg.meta.get("val")
            if arg in unread:
                continue
            if isinstance(value, torch.Tensor):
                meta = meta_of(value)
                if meta.device != device and not meta.is_host_number:
                    return f"it moves data from {meta.device} to {device}"
        with Importer("trial", name_of(node)[0] in CONVOLUTIONS) as trial:
            for y in made(node, trial.value_of):
                if y is not None and not y.is_input:
                    trial.fusion.add_output(copy(y))
        if torch.are_deterministic_algorithms_enabled() and any(map(_has_order, trial.fusion.exprs())):
            return "torch.use_deterministic_algorithms(True): its updates have no order"
        if trial.fusion.outputs and trial.fusion.inputs and name_of(node)[0] not in BY_SCHEDULE:  # its times are those of a schedule
            ours, theirs = times(at_hints(trial.fusion, trial.hints))
            if ours > theirs:
                return f"{SLOWER}{ours:.0f} us as a fusion, {theirs:.0f} us by torch"
    except Refused as error:
        return str(error)
    except TaskfuseError as error:
        return str(error.message)
    return None


def _has_order(expr: MathExpr) -> bool:
    """Whether the result depends on which of several updates of one element comes first."""
    return isinstance(expr, Update) and depends_on_order(expr.combine, expr.output.dtype)


@dataclass(slots=True)
class Importer:
    """A fusion under construction; a context manager, inside which it is the current one.

    Attributes:
        lies: whether strides of all inputs are declared: convolutions depend on the memory format of channels. Without it, those of inputs are whose axes are
            not in memory in their order: kernels take them so. Rows with gaps between them are loaded as they are, and share their kernel with others.
        equal: nodes in whose place another one is passed, the tensor of which is the same.
        hints: as those of :class:`ImportedRegion`.
    """

    name: str
    lies: bool = False
    equal: Mapping[Node, Node] = field(default_factory=dict[Node, Node])
    fusion: Fusion = field(init=False)
    values: dict[Node, Any] = field(default_factory=dict[Node, Any])
    tensors: list[Node] = field(default_factory=list[Node])
    numbers: list[Node] = field(default_factory=list[Node])
    hints: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self.fusion = Fusion(self.name)

    def __enter__(self) -> Self:
        self.fusion.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.fusion.__exit__(*exc)

    def value_of(self, node: Node | torch.SymInt | torch.SymFloat) -> Any:
        """What stands for a node, a tensor that was made, a new input or an expression; or for a number."""
        if not isinstance(node, Node):
            self.declare(node)
            return symbolic(node)
        node = self.equal.get(node, node)
        if node not in self.values:
            self.values[node] = self._input(node)
        return self.values[node]

    def declare(self, value: Any) -> None:
        """The symbols of a tensor's extents as dimensions."""
        self.hints |= hints_of(value)
        for name, dim in symbols_of(value):
            if name not in self.fusion.dims:
                self.fusion.add_dim(dim)

    def _input(self, node: Node) -> Any:
        value = node.meta.get("val")
        if isinstance(value, SYMBOLIC):
            self.declare(value)
            return symbolic(value)
        if isinstance(value, int):
            return value
        if not isinstance(value, torch.Tensor):
            raise Refused(f"an operand is a {type(value).__name__}")
        meta = meta_of(value)
        self.declare(value)
        if meta.is_host_number:
            self.numbers.append(node)
            return full([], define_scalar(meta.dtype, f"n{len(self.numbers) - 1}"), meta.dtype)
        self.tensors.append(node)
        made = define_tensor(list(meta.shape), meta.dtype, f"x{len(self.tensors) - 1}")
        if not same_places(meta.shape, meta.strides, row_major(meta.shape)) and (self.lies or not has_rows(meta, self.fusion.facts())):
            with suppress(TaskfuseError):  # of elements that share a place
                self.fusion.set_strides(made, list(meta.strides))
        return made

    def check_copied(self) -> None:
        """Raises :class:`Refused` if the copy engine, which will load the inputs, cannot load one as it lies."""
        for node in self.tensors:
            value = node.meta["val"]
            if not is_copied(meta_of(value), integer(value.storage_offset()), self.fusion.facts()):
                raise Refused(f"the copy engine cannot load '{node.name}' with the strides {list(value.stride())} from element {value.storage_offset()} on")

    def add(self, node: Node) -> None:
        """Make the results of a node."""
        if node.target is getitem:
            self.values[node] = self.value_of(node.args[0])[node.args[1]]
            return
        if node.target is COPY:  # it is an output, and makes nothing
            return
        self.declare_results(node)
        found = made(node, self.value_of)
        self.values[node] = found if isinstance(node.meta.get("val"), tuple | list) else found[0]

    def declare_results(self, node: Node) -> None:
        """The symbols of what torch says of the results."""
        for v in results(node):
            if isinstance(v, torch.Tensor):
                self.declare(v)

    def add_output(self, node: Node) -> bool:
        """Make a node's tensor an output, with torch's strides. True if these cannot be stored: a row-major array is then made. What a copy writes is stored in
        the array of its argument."""
        y = self.values[node.args[1] if node.target is COPY else node]
        meta = meta_of(node.meta["val"])
        if y.is_input or isinstance(y.definition, View) or among(y, self.fusion.outputs):
            y = copy(y)
        if node.target is COPY:
            self.fusion.add_output(y, into=self.value_of(node.args[0]))
            return False
        plain = same_places(meta.shape, meta.strides, row_major(meta.shape))
        try:
            self.fusion.add_output(y, strides=None if plain else list(meta.strides))
        except TaskfuseError:
            self.fusion.add_output(y)
            return True
        return any(a is not b for a, b in zip(meta.strides, row_major(meta.shape), strict=True)) if plain else False


def imported(nodes: Iterable[Node], outputs: Sequence[Node], expand: Callable[[Node], bool], equal: Mapping[Node, Node] | None = None) -> ImportedRegion:
    """The fusion of some nodes.

    Args:
        nodes: what it computes, producers first.
        outputs: those whose tensors leave it.
        expand: whether a node that a node reads is computed again inside (a view, a constant), rather than passed.
        equal: see :class:`Importer`; for nodes without symbols.

    Raises:
        Refused, TaskfuseError: as :func:`made`.
    """
    nodes = list(nodes)
    lies = any(node.target is not getitem and name_of(node)[0] in CONVOLUTIONS for node in nodes)
    with Importer("region", lies, equal or {}) as building:
        done: dict[Node, None] = {}
        for node in nodes:
            for inner in _with_expanded(node, done, expand):
                building.add(inner)
                done[inner] = None
        restrided = tuple(building.add_output(node) for node in outputs)
        fusion = building.fusion
        if any(node.target is not getitem and name_of(node)[0] in COPIED for node in done):
            building.check_copied()
        if not fusion.inputs and not fusion.scalars:
            raise Refused("it reads nothing")
        direct = {str(e) for tv in fusion.inputs for e in tv.shape}
        integers = tuple(name for name in fusion.dims if name not in direct)
        for name in integers:
            fusion.dims.pop(name, None)
    if integers:
        return _with_integers(tuple(done), outputs, integers, lies)
    return ImportedRegion(fusion, tuple(building.tensors), tuple(building.numbers), (), tuple(outputs), tuple(done), restrided, building.hints)


def _with_integers(nodes: Sequence[Node], outputs: Sequence[Node], integers: Sequence[str], lies: bool) -> ImportedRegion:
    """The fusion of nodes with symbols that are not extents of inputs: the graph passes their values."""
    facts = {name: dim for node in nodes for value in _values(node) for name, dim in symbols_of(value)}
    with Importer("region", lies) as building:
        for name in integers:
            dim = facts[name]
            define_integer(name, dim.min, dim.max)
        for node in nodes:
            building.add(node)
        restrided = tuple(building.add_output(node) for node in outputs)
    tensors, numbers = tuple(building.tensors), tuple(building.numbers)
    return ImportedRegion(building.fusion, tensors, numbers, tuple(integers), tuple(outputs), tuple(nodes), restrided, building.hints)


def _values(node: Node) -> list[Any]:
    found: list[Any] = []
    for n in (node, *node.all_input_nodes):
        found += [v for v in results(n) if isinstance(v, (torch.Tensor, *SYMBOLIC))]
    map_aggregate((node.args, node.kwargs), lambda a: found.append(a) if isinstance(a, SYMBOLIC) else None)
    return found


def _with_expanded(node: Node, done: Mapping[Node, None], expand: Callable[[Node], bool]) -> list[Node]:
    """A node after those that are computed again for it, producers first, without those that are done."""
    found: dict[Node, None] = {}
    stack = [(node, False)]
    while stack:
        at, ready = stack.pop()
        if at in done or at in found:
            continue
        if ready:
            found[at] = None
            continue
        stack.append((at, True))
        stack += [(arg, False) for arg in at.all_input_nodes if expand(arg)]
    return list(found)

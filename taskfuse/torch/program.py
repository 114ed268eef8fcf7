"""A compiled graph: Python source of a function that runs its fusions and the ops left to torch, one after another.

The source names each value once and drops it after its last use, so that torch's allocator can reuse its memory. The source refers to constants: ops by name,
compiled fusions, tensors.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

import torch
from torch.fx import Graph, GraphModule, Node

from taskfuse.torch.aliases import Alias
from taskfuse.torch.bound import BoundCall
from taskfuse.torch.calls import FunctionName, OpName, function_of, viewer
from taskfuse.torch.copies import COPIES, COPY, joined
from taskfuse.torch.importer import ImportedRegion
from taskfuse.torch.kernels import Compiled
from taskfuse.torch.metadata import members, symbols_of

SIZES: Final = frozenset({torch.ops.aten.sym_size.int, torch.ops.aten.sym_stride.int, torch.ops.aten.sym_numel.default})
"""Ops that read what a tensor has from its beginning to its end."""


@dataclass(slots=True)
class GraphProgram:
    """A function from a list of tensors and integers, which it empties, to a list of results.

    Attributes:
        source: of a function ``run``.
        constants: what the source refers to.
        sized: names of fusions that are called with the values of symbols first.
        watch: makes what is called in place of each fusion, until its launches are recorded; :func:`taskfuse.torch.explain` sets it before the first call.
    """

    source: str
    constants: dict[str, Any]
    sized: frozenset[str] = frozenset()
    watch: Callable[[Compiled, BoundCall], BoundCall] | None = field(default=None, repr=False)
    _run: Callable[[list[Any]], Any] | None = field(default=None, repr=False)

    def __call__(self, inputs: list[Any]) -> Any:
        if self._run is None:
            self._run = self._made()
        return self._run(inputs)

    def _made(self) -> Callable[[list[Any]], Any]:
        scope: dict[str, Any] = {"torch": torch, "math": math, "operator": operator, "laid": laid, "viewed": viewer()}
        for name, value in self.constants.items():
            match value:
                case OpName() | FunctionName():
                    scope[name] = value.found()
                case Compiled():
                    site = value.site(partial(scope.__setitem__, name), name in self.sized)
                    scope[name] = site if self.watch is None else self.watch(value, site)
                case _:
                    scope[name] = value
        exec(compile(self.source, "<taskfuse graph>", "exec"), scope)
        return scope["run"]

    def __reduce__(self) -> tuple[Any, ...]:
        return GraphProgram, (self.source, self.constants, self.sized)

    @property
    def fusions(self) -> list[Compiled]:
        """The compiled fusions, in the order in which they run."""
        return [value for value in self.constants.values() if isinstance(value, Compiled)]


def laid(y: Any, strides: Sequence[int], dtype: Any) -> Any:
    """``y`` with given strides and dtype: a view if they put its elements where they are, else a copy."""
    y = y.to(dtype)
    if all(n == 1 or s == t for n, s, t in zip(y.shape, y.stride(), strides, strict=True)):
        return torch.as_strided(y, y.shape, strides)
    return torch.empty_strided(y.shape, strides, dtype=dtype, device=y.device).copy_(y)


@dataclass(slots=True)
class _Writer:
    gm: GraphModule
    regions: Mapping[int, ImportedRegion]
    compiled: Mapping[int, Compiled]
    symbols: Mapping[str, str]
    views: Mapping[Node, Alias]
    expected: Collection[Node]
    later: Mapping[str, Node]
    there: set[Node]  # what has a value so far
    constants: dict[str, Any] = field(default_factory=dict[str, Any])
    sized: set[str] = field(default_factory=set[str])
    functions: dict[Any, FunctionName | None] = field(default_factory=dict[Any, FunctionName | None])
    names: dict[Any, str] = field(default_factory=dict[Any, str])
    lines: list[tuple[str, list[Node], list[Node]]] = field(default_factory=list[tuple[str, list[Node], list[Node]]])  # text, what it reads, what it makes

    def constant(self, prefix: str, value: Any, key: Any = None) -> str:
        known = self.names.get(id(value) if key is None else key)
        if known is None:
            known = f"{prefix}_{len(self.constants)}"
            self.names[id(value) if key is None else key] = known
            self.constants[known] = value
        return known

    def text(self, value: Any) -> str:
        """A value as source."""
        match value:
            case Node() if value.op == "get_attr":
                return self.constant("constant", _attribute(self.gm, str(value.target)), ("attribute", value.target))
            case Node():
                return value.name
            case None | bool() | str():
                return repr(value)
            case torch.SymInt() | torch.SymFloat():
                return _expression(value.node.expr, self.symbols)
            case int():
                return repr(int(value))
            case float():
                return repr(value) if value == value and abs(value) != float("inf") else f"float('{value}')"
            case tuple():
                return f"({''.join(f'{self.text(v)}, ' for v in members(value))})"
            case list():
                return f"[{', '.join(map(self.text, members(value)))}]"
            case dict():
                return "{" + ", ".join(f"{k!r}: {self.text(v)}" for k, v in cast("dict[Any, Any]", value).items()) + "}"
            case slice():
                bounds = cast("slice[Any, Any, Any]", value)
                return f"slice({self.text(bounds.start)}, {self.text(bounds.stop)}, {self.text(bounds.step)})"
            case torch.dtype() | torch.memory_format() | torch.layout():
                return str(value)
            case torch.device():
                return f"torch.device({str(value)!r})"
            case _:
                return self.constant("object", value)

    def op(self, node: Node) -> None:
        """The lines of a node that torch runs, unless they are there."""
        if node in self.there:
            return
        self.there.add(node)
        target: Any = node.target
        view = self.views.get(node)
        if view is not None:
            parts = ", ".join(map(self.text, (view.base, view.shape, view.strides, view.offset)))
            self.lines.append((f"{node.name} = viewed({parts})", [view.base], [node]))
            return
        args = [self.text(a) for a in node.args] + [f"{k}={self.text(v)}" for k, v in node.kwargs.items()]
        function = function_of(node, self.functions)
        if target is operator.getitem:
            line = f"{node.name} = {args[0]}[{args[1]}]"
        else:
            if function is not None:
                called = self.constant(f"torch_{function.name}", function, function)
            elif isinstance(target, torch._ops.OpOverload):
                namespace, name = target._schema.name.split("::")
                called = self.constant(f"{namespace}_{name}", OpName(namespace, name, target._schema.overload_name or "default"), target)
            elif getattr(operator, getattr(target, "__name__", ""), None) is target:
                called = f"operator.{target.__name__}"
            else:
                called = self.constant("function", target)
            line = f"{node.name} = {called}({', '.join(args)})"
        self.lines.append((line, list(node.all_input_nodes), [node]))
        self.check(node)

    def copies(self, nodes: Sequence[Node]) -> None:
        """The line of several copies."""
        namespace, name = COPIES._schema.name.split("::")
        called = self.constant(f"{namespace}_{name}", OpName(namespace, name, "default"), COPIES)
        outs, sources = (", ".join(self.text(node.args[side]) for node in nodes) for side in (0, 1))
        self.lines.append((f"{called}([{outs}], [{sources}])", [a for node in nodes for a in node.all_input_nodes], []))

    def is_known(self, symbol: str) -> bool:
        """Whether a symbol has a value here. One that is a size of a tensor that is there gets it now: nothing changes it until its node comes."""
        node = self.later.get(symbol)
        if node is None:
            return symbol in self.symbols
        if node not in self.there and node.target in SIZES and self.there.issuperset(node.all_input_nodes):
            self.op(node)
        return node in self.there

    def check(self, node: Node) -> None:
        """The lines that check a tensor's strides against torch's metadata, if these are relied upon: ops of torch may return others."""
        value = node.meta.get("val")
        if node in self.expected and isinstance(value, torch.Tensor) and value.layout is torch.strided:
            if not all([self.is_known(str(s)) for n in value.stride() if isinstance(n, torch.SymInt) for s in n.node.expr.free_symbols]):
                return
            strides = self.text(tuple(value.stride()))
            name, dtype = node.name, str(value.dtype)
            self.lines.append((f"if {name}.stride() != {strides} or {name}.dtype is not {dtype}: {name} = laid({name}, {strides}, {dtype})", [node], [node]))

    def region(self, number: int) -> None:
        region = self.regions[number]
        name = self.constant("fusion", self.compiled[number], ("fusion", number))
        args = [self.text(n) for n in (*region.tensors, *region.numbers)] + [self.symbols[s] for s in region.integers]
        symbols = sorted({symbol for n in (*region.tensors, *region.outputs) for symbol, _ in symbols_of(n.meta["val"])} | set(region.integers))
        if symbols:
            self.sized.add(name)
            known = [self.symbols[s] for s in symbols if self.is_known(s)]
            whole = [f"{self.text(n)}.{what}" for n in region.tensors for what in ("shape", "stride()")] if len(known) < len(symbols) else []
            args.insert(0, f"({''.join(f'{s}, ' for s in known + whole)})")
        outputs = [n for n in region.outputs if n.target is not COPY]  # what it writes into arguments has names
        made = "".join("_, " if n.target is COPY else f"{n.name}, " for n in region.outputs)
        drop = "; del _" if len(outputs) < len(region.outputs) else ""
        self.there.update(outputs)
        self.lines.append((f"{made}= {name}({', '.join(args)}){drop}", [*region.tensors, *region.numbers], outputs))
        for node, restrided in zip(region.outputs, region.restrided, strict=True):
            if restrided:
                value = node.meta["val"]
                self.lines.append((f"{node.name} = laid({node.name}, {self.text(tuple(value.stride()))}, {value.dtype})", [node], [node]))


def _attribute(gm: GraphModule, path: str) -> Any:
    found: Any = gm
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _expression(expr: Any, symbols: Mapping[str, str]) -> str:
    """A sympy expression over the variables of the source, in Python."""
    from torch.utils._sympy.printers import PythonPrinter

    printer: Any = PythonPrinter()
    return "(" + re.sub(r"[A-Za-z_]\w*", lambda m: symbols.get(m[0], m[0]), printer.doprint(expr)) + ")"


def symbol_sources(graph: Graph) -> tuple[dict[str, str], dict[str, Node]]:
    """Where the value of each symbol is found: as source over the placeholders, or else the node that gives it."""
    found: dict[str, str] = {}
    later: dict[str, Node] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and type(value.node.expr).__name__ == "Symbol":
            name = str(value.node.expr)
            if node.op == "placeholder":
                found[name] = node.name
            elif name not in found:
                later.setdefault(name, node)
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, torch.Tensor):
            for what, numbers in (("size", value.shape), ("stride", value.stride())):
                for k, number in enumerate(numbers):
                    if isinstance(number, torch.SymInt) and type(number.node.expr).__name__ == "Symbol":
                        found.setdefault(str(number.node.expr), f"{node.name}.{what}({k})")
    return found, {name: node for name, node in later.items() if name not in found}


def written(
    gm: GraphModule,
    order: Sequence[Node | int],
    regions: Mapping[int, ImportedRegion],
    compiled: Mapping[int, Compiled],
    views: Mapping[Node, Alias],
) -> GraphProgram:
    """The program of a graph.

    Args:
        order: the nodes that torch runs, and the fusions; it may leave out what only views read.
        views: nodes that are made as views.
    """
    graph = gm.graph
    known, later = symbol_sources(graph)
    symbols = {name: f"size_{name}" for name in known} | {name: node.name for name, node in later.items()}
    output = next(node for node in graph.nodes if node.op == "output")
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    expected = {view.base for view in views.values()} | {n for region in regions.values() for n in region.tensors} | set(output.all_input_nodes)
    given = {node for node in graph.nodes if node.op in ("placeholder", "get_attr")}
    writer = _Writer(gm, regions, compiled, symbols, views, expected, later, given)
    if any(
        str(node.target).startswith("tangents") for node in placeholders
    ):  # a backward graph: no guard has seen tangents, and what hooks made of saved tensors
        for node in placeholders:
            writer.check(node)
    for step in joined(order):
        match step:
            case int():
                writer.region(step)
            case list():
                writer.copies(step)
            case Node():
                writer.op(step)
    results = writer.text(list(output.args[0]))
    body = ["def run(inputs):"]
    if placeholders:
        body.append(f"    {''.join(f'{n.name}, ' for n in placeholders)}= inputs")
    body.append("    inputs.clear()")
    text = "\n".join(line for line, _, _ in writer.lines) + results
    body += [f"    size_{name} = {source}" for name, source in known.items() if f"size_{name}" in text]
    kept = set(output.all_input_nodes)
    made = {n for _, _, nodes in writer.lines for n in nodes} | set(placeholders)
    last: dict[Node, int] = {n: -1 for n in placeholders}
    for k, (_, reads, makes) in enumerate(writer.lines):
        last |= dict.fromkeys([*reads, *makes], k)
    later_names = set(later.values())
    dropped: dict[int, list[str]] = {}
    for node, k in last.items():
        if node in made and node not in kept and node not in later_names:
            dropped.setdefault(k, []).append(node.name)
    body += [f"    del {', '.join(dropped[-1])}"] if -1 in dropped else []
    for k, (line, _, _) in enumerate(writer.lines):
        body.append(f"    {line}")
        if k in dropped:
            body.append(f"    del {', '.join(dropped[k])}")
    body.append(f"    return {results}")
    return GraphProgram("\n".join(body) + "\n", writer.constants, frozenset(writer.sized))

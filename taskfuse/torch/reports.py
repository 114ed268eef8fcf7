"""What the backend makes of a model: which ops became fusions, which torch runs, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch

from taskfuse.torch.bound import BoundCall
from taskfuse.torch.compilation import GraphReport, listeners
from taskfuse.torch.dynamo import backend
from taskfuse.torch.fates import NUMBER, NodeKind
from taskfuse.torch.kernels import Compiled
from taskfuse.torch.measuring import microseconds
from taskfuse.torch.metadata import members


@dataclass(frozen=True, slots=True)
class Report:
    """What :func:`explain` found.

    Attributes:
        graphs: one for each graph that was compiled: forward, backward or inference.
    """

    graphs: tuple[GraphReport, ...]

    @property
    def coverage(self) -> float:
        """The share of the ops that compute, but for convolutions, which are in fusions; 1 for a model without any. Products that torch is expected to
        compute as fast are not."""
        return _share([where.startswith("fusion") for _, _, _, where in self._computing()])

    @property
    def could(self) -> float:
        """The share of these ops that taskfuse has fusions of, including those left to torch because it is expected to be as fast: what is missing, taskfuse
        lacks."""
        return _share([name in graph.able or where.startswith("fusion") for graph, name, _, where in self._computing()])

    def _computing(self) -> list[tuple[GraphReport, str, str, str]]:
        return [
            (graph, name, op, where)
            for graph in self.graphs
            for name, op, where, reason in graph.ops
            if where != NodeKind.GLUE.value and reason != NUMBER and "convolution" not in op and op != "getitem"
        ]

    @property
    def fusions(self) -> int:
        """How many fusions run."""
        return sum(len(graph.fusions) for graph in self.graphs)

    @property
    def kernels(self) -> int:
        """How many kernels they launch."""
        return sum(len(compiled.executable.kernels) for graph in self.graphs for _, compiled in graph.fusions.values() if compiled.executable is not None)

    def __str__(self) -> str:
        lines: list[str] = []
        for graph in self.graphs:
            lines.append(f"{graph.kind}: {len(graph.fusions)} fusions, compiled in {graph.seconds:.2f} s")
            for number, (region, compiled) in graph.fusions.items():
                ops = Counter(op.removeprefix("aten.").split(".")[0] for _, op, where, _ in graph.ops if where == f"fusion {number}" and op != "getitem")
                made = ", ".join(f"{name} x{n}" if n > 1 else name for name, n in ops.items())
                lines.append(f"  fusion {number}: {made}: {len(region.tensors)} tensors to {len(region.outputs)}; {_kernels(compiled, graph.measured)}")
            left = Counter((op, reason) for _, op, where, reason in graph.ops if where == NodeKind.TORCH.value and reason != NUMBER and op != "getitem")
            lines += [f"  torch: {op}{f' x{n}' if n > 1 else ''}: {reason}" for (op, reason), n in left.items()]
        ours = f"{self.coverage:.0%} of the ops that compute, but for convolutions, are in {self.fusions} fusions of {self.kernels} kernels"
        lines.append(f"{ours}; {self.could:.0%} could be: of the others, torch is expected to be as fast")
        return "\n".join(lines)


def _share(found: Sequence[bool]) -> float:
    return sum(found) / len(found) if found else 1.0


def _kernels(compiled: Compiled, measured: Mapping[str, float]) -> str:
    run = compiled.executable
    expected = getattr(run.schedule, "us", None) if run is not None else None
    times = {"expected": expected, "measured": measured.get(compiled.text)}
    what = "by the reference" if run is None else f"{len(run.kernels)} kernel{'s' * (len(run.kernels) != 1)}"
    return ", ".join([what, *(f"{name} {us:.1f} us" for name, us in times.items() if isinstance(us, float))])


def _timed(measured: dict[str, float], compiled: Compiled, call: BoundCall) -> BoundCall:
    """The call of a fusion, and its time on the way, on copies of the arguments that it writes to."""

    def timed(*args: Any) -> tuple[Any, ...]:
        made = call(*args)
        written = set(compiled.stored.values())
        first = int(isinstance(args[0], tuple))  # sizes
        again = [x.clone() if k - first in written else x for k, x in enumerate(args)]
        measured[compiled.text] = microseconds(lambda: call(*again), made[0].device)
        return made

    return timed


def explain(model: Any, *inputs: Any, mode: str | None = None, options: Mapping[str, Any] | None = None, backward: bool | None = None, **named: Any) -> Report:
    """Compile a model for some inputs, run it once, time its fusions, and say where each op went.

    Args:
        model: a module or a function of tensors.
        inputs, named: the arguments of a call.
        mode, options: as for ``torch.compile``; no CUDA graph is recorded.
        backward: run the backward graph of the sum of the results, too; by default if a result requires gradients.

    Raises:
        Exception: whatever the backend or the model raises: ``strict`` is set.
    """
    found: list[GraphReport] = []

    def seen(report: GraphReport) -> None:
        found.append(report)
        report.program.watch = partial(_timed, report.measured)

    listeners.append(seen)
    try:
        torch._dynamo.reset()
        given = {**(options or {}), "strict": True, "cache": False, "cudagraphs": False}

        def chosen(gm: Any, example: Any) -> Any:
            return backend(gm, example, mode=mode, options=given)

        result = torch.compile(model, backend=chosen)(*inputs, **named)
        if backward is not False:
            sums = [t.sum() for t in _tensors(result) if t.requires_grad]
            if sums:
                torch.autograd.grad(sum(sums[1:], sums[0]), [t for t in _leaves(model, (*inputs, *named.values())) if t.requires_grad], allow_unused=True)
    finally:
        listeners.remove(seen)
        torch._dynamo.reset()
    return Report(tuple(found))


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return _tensors(list(cast("dict[Any, Any]", value).values()))
    return [t for v in members(value) for t in _tensors(v)] if isinstance(value, list | tuple) else []


def _leaves(model: Any, inputs: Sequence[Any]) -> list[Any]:
    return [*(model.parameters() if isinstance(model, torch.nn.Module) else ()), *_tensors(inputs)]

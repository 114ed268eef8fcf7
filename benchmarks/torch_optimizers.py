"""Steps of optimizers: torch's in eager mode (lists of tensors, and its fused kernels), and compiled by Inductor and by taskfuse.

    python benchmarks/torch_optimizers.py [NAME ...] [--models gpt2 resnet50] [--dtype float32|master] [--clip] [--without WAY ...] [--plan]

NAME: sgd, adam, adamw, rmsprop, adagrad, nadam, lion (written with ops of lists). Parameters have the shapes of GPT-2 (148) and of ResNet-50 (161);
``--dtype master``: in bfloat16, with a copy in float32 that the step updates. ``--clip``: the norm of the gradients is clipped before.

Columns: microseconds of a step on the GPU (median of 20 times of 3 calls between events, all ways in turn); of the host for one call on an idle GPU; kernels of
taskfuse and the arguments that torch copies after them; seconds of the first call; the greatest difference from eager mode after three steps, relative to the
greatest parameter.

``--plan``: no GPU; graphs are made of tensors without elements, and nothing runs: how many fusions and kernels there are, the time that is expected of them,
and how long a processor needs to plan and to compile them, each different one once.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest import mock

import torch
from reporting import parser, publish
from torch import nn

import taskfuse as tf
from taskfuse.torch.compilation import GraphReport, copied, listeners, planned_regions
from taskfuse.torch.decompositions import decompositions
from taskfuse.torch.dynamo import backend
from taskfuse.torch.metadata import Meta
from taskfuse.torch.settings import Settings

Shapes = list[tuple[int, ...]]
WAYS = "eager", "fused", "taskfuse", "inductor"
CALLS, ROUNDS = 3, 20


def gpt2(width: int = 768, layers: int = 12, words: int = 50257, length: int = 1024) -> Shapes:
    """The parameters of GPT-2."""
    inner = [(width, 3 * width), (3 * width,), (width, width), (width,)]
    outer = [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    layer = [(width,), (width,), *inner, (width,), (width,), *outer]
    return [(words, width), (length, width), *(layer * layers), (width,), (width,)]


def resnet50() -> Shapes:
    """The parameters of ResNet-50."""
    found: Shapes = [(64, 3, 7, 7), (64,), (64,)]
    channels = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            rows = [(width, channels, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)]
            rows += [(4 * width, channels, 1, 1)] if block == 0 else []
            found += [shape for row in rows for shape in (row, (row[0],), (row[0],))]
            channels = 4 * width
    return [*found, (1000, channels), (1000,)]


MODELS: dict[str, Callable[[], Shapes]] = {"gpt2": gpt2, "resnet50": resnet50}


class Lion:
    """Chen et al., "Symbolic discovery of optimization algorithms" (2023), with ops of lists."""

    def __init__(self, params: Sequence[Any], rate: float, betas: tuple[float, float] = (0.9, 0.99), decay: float = 0.1) -> None:
        self.params = list(params)
        self.moments = [torch.zeros_like(p) for p in params]
        self.rate, self.betas, self.decay = rate, betas, decay

    @torch.no_grad()
    def step(self) -> None:
        """One step."""
        grads = [p.grad for p in self.params]
        update = torch._foreach_lerp(self.moments, grads, 1 - self.betas[0])
        torch._foreach_sign_(update)
        torch._foreach_mul_(self.params, 1 - self.rate * self.decay)
        torch._foreach_add_(self.params, update, alpha=-self.rate)
        torch._foreach_lerp_(self.moments, grads, 1 - self.betas[1])


def optimizer(name: str, params: Sequence[Any], way: str) -> Any:
    """An optimizer; on tensors with steps on the GPU, as ``torch.compile`` makes them."""
    how: dict[str, Any] = {"fused": True} if way == "fused" else {"foreach": True}
    capturable = {**how, "capturable": True}
    match name:
        case "sgd":
            return torch.optim.SGD(params, 0.01, momentum=0.9, **how)
        case "adam":
            return torch.optim.Adam(params, 1e-3, **capturable)
        case "adamw":
            return torch.optim.AdamW(params, 1e-3, **capturable)
        case "rmsprop":
            return torch.optim.RMSprop(params, 1e-3, momentum=0.9, **capturable)
        case "adagrad":
            return torch.optim.Adagrad(params, 1e-2, **how)
        case "nadam":
            return torch.optim.NAdam(params, 1e-3, **capturable)
        case _:
            return Lion(params, 1e-4)


class Step:
    """A step of an optimizer.

    Args:
        way: one of :data:`WAYS`.
        master: parameters are in bfloat16, with copies in float32.
        clip: the norm of the gradients is clipped.
    """

    def __init__(self, name: str, shapes: Shapes, way: str, master: bool, clip: bool, device: str) -> None:
        torch.manual_seed(0)
        dtype = torch.bfloat16 if master else torch.float32
        with torch.device(device):
            self.params = [nn.Parameter(torch.randn(shape).to(dtype)) for shape in shapes]
            for p in self.params:
                p.grad = torch.randn_like(p)
            self.masters = [nn.Parameter(p.detach().float()) for p in self.params] if master else self.params
            if master:
                for p in self.masters:
                    p.grad = torch.zeros_like(p)
        self.optimizer = optimizer(name, self.masters, way)
        self.master, self.clip = master, clip
        whole: Any = self.whole
        self.call: Callable[[], Any] = whole if way in ("eager", "fused") else torch.compile(whole, backend=backend if way == "taskfuse" else way)

    def whole(self) -> None:
        """All that is measured."""
        if self.clip:
            nn.utils.clip_grad_norm_(self.params, 1.0, foreach=True)
        if self.master:
            self._widen()
        self.optimizer.step()
        if self.master:
            self._narrow()

    @torch.no_grad()
    def _widen(self) -> None:
        torch._foreach_copy_([p.grad for p in self.masters], [p.grad for p in self.params])

    @torch.no_grad()
    def _narrow(self) -> None:
        torch._foreach_copy_(self.params, self.masters)


def us(call: Callable[[], Any]) -> float:
    """Microseconds of a call on the GPU."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(CALLS):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1000 / CALLS


def host_us(call: Callable[[], Any]) -> float:
    """Microseconds of the host for a call on an idle GPU."""
    found: list[float] = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return statistics.median(found) * 1e6


def measured(name: str, model: str, given: Any) -> str:
    """A line of the table."""
    steps: dict[str, Step] = {}
    seconds: dict[str, float] = {}
    found: list[GraphReport] = []
    listeners.append(found.append)
    for way in WAYS:
        if way in given.without or (way == "fused" and name in ("rmsprop", "nadam", "lion")):
            continue
        torch._dynamo.reset()
        steps[way] = made = Step(name, MODELS[model](), way, given.dtype == "master", given.clip, "cuda")
        start = time.perf_counter()
        made.call()
        torch.cuda.synchronize()
        seconds[way] = time.perf_counter() - start
        print(f"{model} {name} {way}: {seconds[way]:.1f} s", file=sys.stderr, flush=True)
        for _ in range(2):
            made.call()
    listeners.remove(found.append)
    right = steps["eager"].params
    largest = max(p.abs().max().item() for p in right)
    off = {way: max((a - b).abs().max().item() for a, b in zip(s.params, right, strict=True)) / largest for way, s in steps.items()}
    times: dict[str, list[float]] = {way: [] for way in steps}
    for _ in range(ROUNDS):
        for way, made in steps.items():
            times[way].append(us(made.call))
    host = {way: host_us(made.call) for way, made in steps.items()}
    runs = [compiled.executable for g in found for _, compiled in g.fusions.values() if compiled.executable is not None]
    kernels = sum(len(getattr(run.schedule, "steps", (run,))) for run in runs)
    left = sum(op.startswith("aten.copy_") and where == "left to torch" for g in found for _, op, where, _ in g.ops)

    def row(values: dict[str, float], form: str, *without: str) -> str:
        return ", ".join(f"{way} {value:{form}}" for way, value in values.items() if way not in without)

    medians = {way: statistics.median(t) for way, t in times.items()}
    ratios = {way: us / medians["taskfuse"] for way, us in medians.items()} if "taskfuse" in medians else {}
    return (
        f"{model:8} {name:7} us: {row(medians, '.0f')}; relative to taskfuse: {row(ratios, '.2f', 'taskfuse')}; host us: {row(host, '.0f')}; "
        f"{sum(len(g.fusions) for g in found)} fusions, {kernels} kernels, {left} copied; "
        f"s: {row(seconds, '.1f', 'eager', 'fused')}; off: {row(off, '.0e', 'eager')}"
    )


def planned(name: str, model: str, given: Any) -> str:
    """What is expected of a step, on any machine."""
    from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func
    from torch._subclasses.fake_tensor import FakeTensorMode

    lines: list[str] = []

    def compiler(gm: Any, _: Any) -> Any:
        start = time.process_time()
        regions = planned_regions(copied(gm), Settings(run="reference"))[1]
        planning, start = time.process_time() - start, time.process_time()
        runs = {region.text: tf.compile(region.fusion, "sim", target="H200", cache=False) for region in {r.text: r for r in regions.values()}.values()}
        every = [runs[region.text] for region in regions.values()]
        kernels, expected = sum(len(run.kernels) for run in every), sum(0.0 if run.schedule is None else run.schedule.us for run in every)
        written = sum(len(k.in_place) for run in every for k in run.kernels)
        took = time.process_time() - start
        lines.append(
            f"{model:8} {name:7} {len(gm.graph.nodes)} nodes, {len(regions)} fusions, {len(runs)} different, {kernels} kernels, {expected:.0f} us expected, "
            f"{written} arguments written in place; s of a processor: {planning:.1f} to plan, {took:.1f} to compile"
        )
        return make_boxed_func(gm.forward)

    def chosen(gm: Any, example: Any) -> Any:
        compilers = dict.fromkeys(("fw_compiler", "bw_compiler", "inference_compiler"), compiler)
        return aot_module_simplified(gm, example, **compilers, decompositions=decompositions("cpu"), keep_inference_input_mutations=True)

    torch._dynamo.reset()
    with FakeTensorMode(allow_non_fake_inputs=True), mock.patch.object(Meta, "is_host_number", False):  # counts of steps are on the GPU
        step = Step(name, MODELS[model](), "eager", given.dtype == "master", given.clip, "cpu")
        for p in step.masters if isinstance(step.optimizer, torch.optim.Optimizer) else []:
            one, state = torch.empty([]), step.optimizer.state[p]
            match name:
                case "sgd":
                    state["momentum_buffer"] = torch.empty_like(p)
                case "adam" | "adamw" | "nadam":
                    state.update(step=one, exp_avg=torch.empty_like(p), exp_avg_sq=torch.empty_like(p))
                    state.update({"mu_product": torch.empty([])} if name == "nadam" else {})
                case "rmsprop":
                    state.update(step=one, square_avg=torch.empty_like(p), momentum_buffer=torch.empty_like(p))
                case _:
                    pass
        whole: Any = step.whole
        torch.compile(whole, backend=chosen)()
    return "\n".join(lines)


def main() -> int:
    """Run what the command line says."""
    warnings.filterwarnings("ignore")
    line = parser(__doc__)
    line.add_argument("names", nargs="*", metavar="NAME", help="optimizers; by default all")
    line.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    line.add_argument("--dtype", default="float32", choices=("float32", "master"))
    line.add_argument("--clip", action="store_true", help="clip the norm of the gradients before")
    line.add_argument("--without", nargs="+", default=[], choices=WAYS, help="ways to leave out")
    line.add_argument("--plan", action="store_true", help="no GPU: kernels and expected times")
    given = line.parse_args()
    names = given.names or ["sgd", "adam", "adamw", "rmsprop", "adagrad", "nadam", "lion"]
    one = partial(planned if given.plan else measured, given=given)
    lines: list[str] = []
    for model in given.models:
        for name in names:
            lines.append(one(name, model))
            print(lines[-1], flush=True)
    if given.write:
        publish("torch_optimizers", lines, given)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Where the time to compile a model's fusions goes, without a GPU: seconds of one core, by part.

    python benchmarks/compile_models.py [NAME ...] [--zoo] [--train]

Graphs are captured and partitioned as by ``torch.compile(backend="taskfuse")``, of the models of ``benchmarks/models.py`` at real widths, without elements, or
with ``--zoo`` of architectures of ``benchmarks/model_zoo.py``, small. Each different fusion is then compiled for an H200, machine code included, without a
cache. *torch* is the time of Dynamo and AOTAutograd; *plan* that of partition and import; *longest* that of the fusion which takes longest, the least that
processes side by side can wait for.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from models import cases, step

import taskfuse as tf
from taskfuse.cuda import cache, fit
from taskfuse.errors import TaskfuseError
from taskfuse.ir.parser import parse_fusion
from taskfuse.options import set_variables, variables
from taskfuse.runtime import kernel, proof
from taskfuse.schedulers import candidates
from taskfuse.torch.compilation import copied, planned_regions
from taskfuse.torch.decompositions import decompositions
from taskfuse.torch.settings import Settings

PARTS: tuple[tuple[str, tuple[tuple[ModuleType | type, str], ...]], ...] = (
    ("lower", ((kernel, "lower"), (candidates, "lower"))),
    ("prove", ((proof.Proof, "__init__"),)),
    ("emit", ((fit, "emitted"),)),
    ("NVRTC", ((cache, "compile_cubin"),)),
)
"""Functions whose time is a part of its own; the rest is the search for schedules."""


class Watch:
    """Seconds of the processor inside functions, and calls of them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()

    def watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose time counts as that of ``name``."""

        @wraps(function)
        def call(*args: Any, **more: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args, **more)
            finally:
                self.seconds[name] += time.process_time() - start
                self.calls[name] += 1

        return call

    @contextmanager
    def on(self) -> Generator[None]:
        """Watch :data:`PARTS`."""
        patches = [patch.object(module, name, self.watched(part, getattr(module, name))) for part, places in PARTS for module, name in places]
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in patches:
                one.stop()


def captured(model: Any, inputs: tuple[Any, ...], train: bool) -> tuple[list[str], float, float, int]:
    """The fusions of a model as texts, seconds of torch and of the plan, and nodes."""
    from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    texts: list[str] = []
    planning, nodes = 0.0, 0

    def planned(gm: Any, _: Any) -> Any:
        nonlocal planning, nodes
        start = time.process_time()
        texts.extend(region.text for region in planned_regions(copied(gm), Settings(run="reference"))[1].values())
        planning += time.process_time() - start
        nodes += len(gm.graph.nodes)
        return make_boxed_func(gm.forward)

    def chosen(gm: Any, example: Any) -> Any:
        return aot_module_simplified(
            gm,
            example,
            fw_compiler=planned,
            bw_compiler=planned,
            inference_compiler=planned,
            partition_fn=min_cut_rematerialization_partition,
            decompositions=decompositions("cpu"),
            keep_inference_input_mutations=True,
        )

    torch._dynamo.reset()
    start = time.process_time()
    step(torch.compile(model, backend=chosen), inputs, train)
    return texts, time.process_time() - start - planning, planning, nodes


def compiled(texts: list[str]) -> str:
    """Compile fusions, each once: the seconds of each part."""
    watch, longest, kernels, failed, us = Watch(), 0.0, 0, 0, 0.0
    whole = time.process_time()
    with watch.on():
        for text in dict.fromkeys(texts):
            start = time.process_time()
            try:
                run = tf.compile(parse_fusion(text), "cuda", target="H200", cache=False)
                kernels, us = kernels + len(run.kernels), us + (0.0 if run.schedule is None else run.schedule.us)
            except TaskfuseError:
                failed += 1
            longest = max(longest, time.process_time() - start)
    whole = time.process_time() - whole
    parts = ", ".join(f"{name} {watch.seconds[name]:.2f} s ({watch.calls[name]})" for name, _ in PARTS)
    rest = whole - sum(watch.seconds.values())
    made = f"{len(set(texts))} different, {kernels} kernels, {us:.0f} us expected{f', {failed} failed' if failed else ''}"
    return f"{made}: {whole:.2f} s: {parts}, search {rest:.2f} s; longest {longest:.2f} s"


def built(name: str, zoo: bool, train: bool) -> tuple[Any, tuple[Any, ...]]:
    """A model and its inputs."""
    dtype = torch.float32 if zoo and train else torch.bfloat16
    if zoo:
        import model_zoo

        model, inputs = model_zoo.built(name)
        model = model.to(dtype)
    else:
        torch.set_default_dtype(dtype)
        try:
            model = cases(False)[name][0]()
        finally:
            torch.set_default_dtype(torch.float32)
        inputs = cases(False)[name][1]()
    return model, tuple(x.to(dtype=dtype if x.is_floating_point() else None) for x in inputs)


def main() -> int:
    """Run what the command line says."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--zoo", action="store_true")
    parser.add_argument("--train", action="store_true")
    given = parser.parse_args()
    set_variables((*variables(), ("TASKFUSE_CACHE_BYTES", "0")))
    with tf.Fusion("warm") as warm:
        warm.add_output(tf.sum(tf.define_tensor([4096, 1024]), 1))
    tf.compile(warm, "cuda", target="H200", cache=False)
    for name in given.names or ([] if given.zoo else list(cases(False))):
        try:
            if given.zoo:
                found = captured(*built(name, True, given.train), given.train)
            else:
                with FakeTensorMode(allow_non_fake_inputs=True):
                    found = captured(*built(name, False, given.train), given.train)
        except Exception as error:
            print(f"{name:14} FAILED {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        texts, traced, planning, nodes = found
        print(f"{name:14} {nodes} nodes, torch {traced:.1f} s, plan {planning:.2f} s, {len(texts)} fusions, {compiled(texts)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

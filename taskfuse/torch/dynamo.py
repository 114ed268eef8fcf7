"""The backend: what ``torch.compile(model, backend="taskfuse")`` calls with each graph that Dynamo captures."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule

from taskfuse.runtime.workers import start
from taskfuse.torch.aot import RestartAnalysis, aot_module_simplified, min_cut_rematerialization_partition
from taskfuse.torch.cached import TaskfuseCode, caching
from taskfuse.torch.compilation import pad_joint, program_of
from taskfuse.torch.cuda_graphs import GraphRecorder
from taskfuse.torch.decompositions import decompositions
from taskfuse.torch.min_cut import cuts_without_networkx
from taskfuse.torch.settings import Settings, settings_of
from taskfuse.torch.stand_ins import partition_without_inductor

KINDS = "forward", "backward", "inference"
"""The kinds of graphs of AOTAutograd."""


def backend(gm: GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Compile a graph of Dynamo, forward and, when it is needed, backward.

    Args:
        gm: the graph.
        example_inputs: fake or real tensors and integers of a call.
        mode, options: what the caller of ``torch.compile`` gave; see docs/torch.md.

    Raises:
        UnsupportedError: an unknown mode or option.
        Exception: with ``options={"strict": True}``, whatever went wrong; otherwise the graph runs as it is, with a warning.
    """
    settings = settings_of(mode, options)
    try:
        return _compiled(gm, example_inputs, settings)
    except Exception as error:
        if settings.strict or isinstance(error, RestartAnalysis):  # no error: Dynamo traces again, with what it has learned
            raise
        warnings.warn(f"taskfuse leaves a graph to torch: {type(error).__name__}: {error}", stacklevel=2)
        return gm.forward


def reset() -> None:
    """What ``torch._dynamo.reset`` does for this backend: recorded CUDA graphs are freed."""
    GraphRecorder.reset()


backend.__dict__["reset"] = reset


def _compiled(gm: GraphModule, example_inputs: Sequence[Any], settings: Settings) -> Callable[..., Any]:
    tensors = [x for x in example_inputs if isinstance(x, torch.Tensor)]
    wanted = any(t.device.type == settings.device for t in tensors) or any(p.device.type == settings.device for p in gm.parameters())
    if wanted and settings.run == "kernels":
        start(settings.processes)  # they are ready when the graphs are
    ahead: list[GraphModule] = []  # the backward graph, while the forward one is compiled

    def partitioned(joint: GraphModule, *args: Any, **kwargs: Any) -> tuple[GraphModule, GraphModule]:
        if wanted:
            pad_joint(joint.graph, settings)
        with partition_without_inductor(), cuts_without_networkx():
            forward, backward = min_cut_rematerialization_partition(joint, *args, **kwargs)
        ahead[:] = [backward]
        return forward, backward

    recorder = GraphRecorder(len(example_inputs)) if settings.cudagraphs else None
    with ExitStack() as stack:
        wrapped = caching(stack, settings, tensors)
        plain = {kind: partial(_code, kind=kind, settings=settings, recorder=recorder, ahead=ahead) for kind in KINDS}
        compilers = {kind: wrapped(_untraced(compiler) if kind == "backward" else compiler) for kind, compiler in plain.items()}
        return aot_module_simplified(
            gm,
            example_inputs,
            fw_compiler=compilers["forward"],
            bw_compiler=compilers["backward"],
            inference_compiler=compilers["inference"],
            partition_fn=partitioned,
            decompositions=decompositions(settings.device) if wanted else {},
            keep_inference_input_mutations=True,
        )


def _untraced(compiler: Callable[..., TaskfuseCode]) -> Callable[..., Any]:
    """A compiler of backward graphs. Where compiled code asks for gradients, Dynamo is on: it must trace neither the compiler nor what this makes, as it would
    compile the backward graph by this backend, and again what comes of that."""

    def compiled(gm: GraphModule, example_inputs: Sequence[Any]) -> Any:
        return torch._dynamo.disable(compiler(gm, example_inputs), reason="a compiled backward graph")

    return torch._dynamo.disable(compiled, reason="the compiler of a backward graph")


def _code(
    gm: GraphModule, example_inputs: Sequence[Any], *, kind: str, settings: Settings, recorder: GraphRecorder | None, ahead: list[GraphModule]
) -> TaskfuseCode:
    """One graph of AOTAutograd, compiled; with the forward one that of ``ahead`` begins."""
    following = ahead.pop() if kind == "forward" and ahead else None
    code = TaskfuseCode(program_of(gm, kind, settings, following))
    if recorder is not None:
        code.recorded = recorder.recorded(code.program, gm, example_inputs, kind)
    return code

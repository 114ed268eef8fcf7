"""Compiled graphs in torch's caches: their contents, and the tag that distinguishes them from those of other backends.

torch's key of a graph covers neither the compiler nor its options, so that two backends would find each other's graphs: the tag
(:attr:`taskfuse.torch.settings.Settings.tag`) is part of every key while a graph is compiled. The key is made without Inductor
(:mod:`taskfuse.torch.stand_ins`), and without a digest of torch's files (:mod:`taskfuse.torch.installed`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch._inductor.output_code import OutputCode

from taskfuse.torch.program import GraphProgram
from taskfuse.torch.settings import Settings
from taskfuse.torch.stand_ins import keys_without_inductor


@dataclasses.dataclass
class TaskfuseCode(OutputCode):
    """A compiled graph as torch's caches keep it.

    Attributes:
        program: what runs.
        recorded: the same as a CUDA graph, which each process records.
        _time_taken_ns: of its compilation, unknown: torch adds these of graphs that it finds.
    """

    program: GraphProgram
    recorded: Callable[[list[Any]], Any] | None = None
    _time_taken_ns: int | None = dataclasses.field(default=0, init=False)
    _boxed_call: bool = True  # in the object itself: torch copies its attributes to what wraps it

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """Run it; a list is emptied."""
        given = inputs if isinstance(inputs, list) else list(inputs)
        return (self.recorded or self.program)(given)

    def prepare_for_serialization(self) -> None:
        """Nothing: what belongs to a process is in no pickle."""

    def post_compile(self, example_inputs: Any, *rest: Any, **more: Any) -> None:
        """Nothing: kernels are loaded, and graphs recorded, when they are first called."""

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Nothing: there are no Triton kernels."""


Compiler = Callable[[Any, Sequence[Any]], TaskfuseCode]


def caching(stack: ExitStack, settings: Settings, tensors: Sequence[torch.Tensor]) -> Callable[[Compiler], Any]:
    """Set torch's caches for the compilation of a graph, until ``stack`` closes; the result makes a compiler one whose graphs they keep.

    Without the parts of torch that this needs, graphs are compiled in each process.

    Args:
        tensors: the inputs, whose places in common storages are part of the key: those that are written to are views of one tensor in the graph, and torch's
            key lacks where they begin.
    """
    if not settings.cache:
        return lambda compiler: compiler
    try:
        from torch._functorch import config
        from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler

        stack.enter_context(config.patch(bundled_autograd_cache=True))
        if hasattr(config, "force_non_lazy_backward_lowering"):  # an entry holds both graphs: the backward one is compiled now, while the tag is set
            stack.enter_context(config.patch(force_non_lazy_backward_lowering=True))
        stack.enter_context(keys_without_inductor())
        stack.enter_context(torch.compiler.config.patch(cache_key_tag=f"{settings.tag}{shared_places(tensors)}"))
    except (ImportError, AttributeError):
        return lambda compiler: compiler
    return lambda compiler: SerializableAOTDispatchCompiler(TaskfuseCode, compiler)


def shared_places(tensors: Sequence[torch.Tensor]) -> str:
    """Where tensors begin in a storage that several of them have, as text; empty if none have one in common."""
    strided = [(k, t) for k, t in enumerate(tensors) if t.layout is torch.strided]
    storages = [t.untyped_storage()._cdata for _, t in strided]
    shared = [f"{k}: {storages.index(s)} + {t.storage_offset()}" for (k, t), s in zip(strided, storages, strict=True) if storages.count(s) > 1]
    return f", inputs at {', '.join(shared)}" if shared else ""

"""Graphs recorded as CUDA graphs, by torch's trees of them: one recording for each tuple of integers among the inputs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

log = logging.getLogger(__name__)

Run = Callable[[list[Any]], Any]
"""A compiled graph."""


@dataclass(slots=True)
class RecordedGraph:
    """A compiled graph that is recorded in its first calls. torch's caches keep it: each process makes recordings of its own.

    Attributes:
        run: the graph.
        kind: ``"forward"``, ``"backward"`` or ``"inference"``.
        device: the index of its GPU.
        fixed: positions of the inputs that are the same tensors in each call, such as parameters; others are copied into the graph's memory.
        known: what torch's trees ask of the graph, by their arguments; ``None``: a backward graph that runs as it is, after a forward one that is recorded.
    """

    run: Run
    kind: str
    device: int
    fixed: tuple[int, ...]
    known: dict[str, Any] | None
    _recorded: Run | None = field(default=None, repr=False)

    def __call__(self, inputs: list[Any]) -> Any:
        if self._recorded is None:
            self._recorded = self._made(inputs)
        return self._recorded(inputs)

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordedGraph, (self.run, self.kind, self.device, self.fixed, self.known)

    def _made(self, inputs: list[Any]) -> Run:
        from torch._inductor.cudagraph_trees import cudagraphify_impl, get_manager

        if self.known is None:
            manager = get_manager(self.device, create_if_none_exists=False)

            def running_backward(inputs: list[Any]) -> Any:
                if manager is not None:
                    manager.set_to_running_backward()
                return self.run(inputs)

            return running_backward
        kinds = {"is_backward": self.kind == "backward", "is_inference": self.kind == "inference"}
        return cudagraphify_impl(self.run, list(inputs), self.fixed, device_index=self.device, **kinds, **self.known)


class GraphRecorder:
    """Records the graphs of one function of ``torch.compile``: its forward and backward share a pool of memory.

    Args:
        inputs: how many arguments Dynamo's graph has.
    """

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.device: int | None = None

    def recorded(self, run: Run, gm: GraphModule, example_inputs: Sequence[Any], kind: str) -> RecordedGraph | None:
        """``run`` as a recorded graph; ``None`` if it cannot be one: it writes to inputs other than parameters and buffers, uses the host or several devices,
        or has ops that wait."""
        try:
            from torch._dynamo.backends import cudagraphs as torchs
            from torch._inductor.cudagraph_utils import get_mutation_stack_trace, get_placeholder_info
            from torch._inductor.utils import count_tangents, num_fw_fixed_arguments
        except ImportError as error:
            log.warning("no CUDA graphs with this version of torch: %s", error)
            return None
        backward = kind == "backward"
        if backward and self.device is None:
            return None
        lifted = count_tangents(gm) if backward else num_fw_fixed_arguments(self.inputs, len(example_inputs))
        fixed = tuple(range(lifted)) if backward else fixed_inputs(lifted)
        placeholders, written = get_placeholder_info(gm.graph), torchs.find_input_mutations(gm.graph)
        skipped = torchs.check_for_skip(gm, len(placeholders))  # but for writes
        if not skipped and written.difference(fixed):
            skipped = get_mutation_stack_trace(placeholders, written.difference(fixed))
        if skipped:
            log.warning("no CUDA graph: %s", skipped)
            return RecordedGraph(run, kind, self.device, fixed, None) if backward and self.device is not None else None
        device = self.device = torchs.get_device_index(gm)
        known = {
            "stack_traces": torchs.get_stack_traces(gm),
            "placeholders": placeholders,
            "mutated_input_idxs": written,
        }
        return RecordedGraph(run, kind, device, fixed, known)

    @staticmethod
    def reset() -> None:
        """Free all recordings."""
        if torch.cuda.is_available():
            from torch._inductor.cudagraph_trees import reset_cudagraph_trees

            reset_cudagraph_trees()


def fixed_inputs(lifted: int) -> tuple[int, ...]:
    """The positions of parameters and buffers among the inputs of the forward graph that AOTAutograd makes now: Dynamo passes them as the caller's tensors.

    Args:
        lifted: how many inputs come before those of Dynamo's graph.
    """
    context = torch._guards.TracingContext.try_get()
    known = None if context is None or context.fw_metadata is None else context.fw_metadata.static_input_indices
    return tuple(range(lifted) if known is None else known)

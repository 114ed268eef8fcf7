"""Graphs recorded as CUDA graphs, by torch's trees of them: one recording for each tuple of integers among the inputs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

log = logging.getLogger(__name__)


class GraphRecorder:
    """Records the graphs of one function of ``torch.compile``: its forward and backward share a pool of memory.

    Args:
        inputs: how many arguments Dynamo's graph has.
    """

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.device: int | None = None

    def recorded(self, run: Callable[[list[Any]], Any], gm: GraphModule, example_inputs: Sequence[Any], kind: str) -> Callable[[list[Any]], Any] | None:
        """``run`` as a recorded graph; ``None`` if it cannot be one: it writes to inputs, uses the host or several devices, or has ops that wait."""
        try:
            from torch._dynamo.backends import cudagraphs as torchs
            from torch._inductor.cudagraph_trees import cudagraphify_impl, get_manager
            from torch._inductor.cudagraph_utils import get_placeholder_info
            from torch._inductor.utils import count_tangents, num_fw_fixed_arguments
        except ImportError as error:
            log.warning("no CUDA graphs with this version of torch: %s", error)
            return None
        backward = kind == "backward"
        if backward and self.device is None:
            return None
        fixed = count_tangents(gm) if backward else num_fw_fixed_arguments(self.inputs, len(example_inputs))
        skipped = torchs.check_for_skip(gm, fixed)
        if skipped:
            log.warning("no CUDA graph: %s", skipped)
            if not backward or self.device is None:
                return None
            manager = get_manager(self.device, create_if_none_exists=False)

            def running_backward(inputs: list[Any]) -> Any:
                if manager is not None:
                    manager.set_to_running_backward()
                return run(inputs)

            return running_backward
        self.device = torchs.get_device_index(gm)
        return cudagraphify_impl(
            run,
            list(example_inputs),
            range(fixed),
            device_index=self.device,
            is_backward=backward,
            is_inference=kind == "inference",
            stack_traces=torchs.get_stack_traces(gm),
            placeholders=get_placeholder_info(gm.graph),
            mutated_input_idxs=torchs.find_input_mutations(gm.graph),
        )

    @staticmethod
    def reset() -> None:
        """Free all recordings."""
        if torch.cuda.is_available():
            from torch._inductor.cudagraph_trees import reset_cudagraph_trees

            reset_cudagraph_trees()

"""AOTAutograd, imported where torch looks up the backend, before it traces: Dynamo imports it for every backend, in the first call if nobody has before.

Its modules name networkx, half of what they import, in annotations; the partitioner alone computes with it, for which there is
:mod:`taskfuse.torch.min_cut`.
"""

from typing import Any, Final

from torch._dynamo.exc import RestartAnalysis  # first: Dynamo looks for networkx among the installed modules

from taskfuse.torch.stand_ins import annotations_without_networkx

with annotations_without_networkx():
    import torch._functorch.aot_autograd as functions
    import torch._functorch.partitioners as partitioners

aot_module_simplified: Final[Any] = functions.aot_module_simplified
min_cut_rematerialization_partition: Final[Any] = partitioners.min_cut_rematerialization_partition

__all__ = ["RestartAnalysis", "aot_module_simplified", "min_cut_rematerialization_partition"]

"""AOTAutograd, imported before the first call: Dynamo imports it for every backend, in the first call of one that is given as a function.

Its modules name networkx, half of what they import, in annotations; the partitioner alone computes with it, for which there is
:mod:`taskfuse.torch.min_cut`. torch imports both, and this module finds them, where it looks up a backend by its name.
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

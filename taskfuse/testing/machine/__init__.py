"""A second machine for kernel IR, to contradict the static proof.

It executes kernels thread by thread in plain Python, and shares with the checker and the simulator nothing but kernel IR itself: expressions become Python
text, memory and barriers are its own. It computes no values, since control flow does not depend on data. A run follows one order; races, missing fences
and waits that may see another phase show in any.
"""

from taskfuse.testing.machine.fault import FaultKind, MachineFault, NoLaunch, OutOfSteps
from taskfuse.testing.machine.refuter import find_fault

__all__ = ["FaultKind", "MachineFault", "NoLaunch", "OutOfSteps", "find_fault"]

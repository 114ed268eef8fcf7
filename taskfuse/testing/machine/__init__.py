"""A second machine for kernel IR, which tries to contradict the static proof.

It executes kernels thread by thread in plain Python, and shares only kernel IR itself with the checker and the simulator: expressions become Python
text, and it has its own memory and barriers. It computes no values, since control flow does not depend on data. A run follows one order; races, missing fences
and waits that may observe another phase show in any order.
"""

from taskfuse.testing.machine.fault import FaultKind, MachineFault, NoLaunch, OutOfSteps
from taskfuse.testing.machine.refuter import find_fault

__all__ = ["FaultKind", "MachineFault", "NoLaunch", "OutOfSteps", "find_fault"]

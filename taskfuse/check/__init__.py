"""The static proof: a kernel has no deadlock, no race and no index out of bounds, and computes its definitions; for all extents, trip counts and interleavings.

``verify(kernel)`` reads kernel IR and nothing above it, and imports nothing of the simulator. docs/proof.md has the claim and the argument,
docs/memory-model.md the machine. The argument has four layers:

* *structure* (``barriers``, ``rings``, ``pingpong``): which threads synchronize, and how often. Equal trips, exact counts and cursors in lock step imply,
  by induction for all trip counts, the obligations of every wait for phase k of a barrier: completion of k-1 happens before it (E), it happens
  before completion of k+1 (L), and every arrival counted in k comes after completion of k-1 (A).
* *order* (``order``, ``registers``): one order of all synchronization in which every wait comes after everything it waits for.
* *address* (``accesses``, ``relation``, ``linear``, ``races``, ``bounds``): two conflicting accesses never touch the same element, are made by one thread,
  or are ordered.
* *values* (``values``): every element of every output has the value that the kernel's definitions give.

If an obligation is not proved, the checker searches small launches for a counterexample (``counterexample``), lazily, when the verdict or its
text is read. ``verify(kernel, extents)`` makes the same argument at given extents, where every trip count is known.
"""

from taskfuse.check.verify import verify
from taskfuse.reports.certificate import Certificate, Layer, Obligation, Verdict

__all__ = ["Certificate", "Layer", "Obligation", "Verdict", "verify"]

"""The static proof: a kernel free of deadlock and race, for all extents, trip counts and interleavings, or what stands against it.

``verify(kernel)`` reads kernel IR and knows nothing above it; it shares no code with the simulator. docs/proof.md has the claim, the model and the
argument; docs/memory-model.md the machine. The argument has three layers:

* *structure* (``barriers``, ``rings``, ``pingpong``): who meets whom and how often. From equal trips, exact counts and cursors in lock step follow,
  by induction for all trip counts, the obligations of every wait for phase k of a barrier: completion of k-1 happens before it (E), it happens
  before completion of k+1 (L), and every arrival counted in k comes after completion of k-1 (A).
* *order* (``order``, ``registers``): one order of all synchronization in which every wait comes after what it waits for.
* *address* (``accesses``, ``relation``, ``linear``, ``races``, ``bounds``): two conflicting accesses never meet, are one thread's, or are ordered.

Where a gap is left, small launches are looked at (``counterexample``) as soon as somebody asks why, so that a refusal comes with a counterexample where
there is one. ``verify(kernel, extents)`` makes the same argument about the kernel at given extents, where every trip count is known.
"""

from taskfuse.check.verify import verify
from taskfuse.reports.certificate import Certificate, Layer, Obligation, Verdict

__all__ = ["Certificate", "Layer", "Obligation", "Verdict", "verify"]

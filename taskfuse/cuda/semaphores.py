"""Semaphores in CUDA C++: counters in Global memory that a launch finds at zero.

PTX ISA, "red" and "ld", with ``.release`` and ``.acquire`` at ``.gpu`` scope; "Memory Consistency Model", causality order: what the releasing
thread has seen of its block (``barrier.sync``) is released too, and what the acquiring one passes on to its block is acquired by all. Counts
are of 64 bits: they never wrap.
"""

from __future__ import annotations

from taskfuse.cuda.instructions import COUNTER_VALUE, REPORT
from taskfuse.cuda.text import Helper

RELEASE = Helper(
    "semaphore_release",
    """\
__device__ __forceinline__ void semaphore_release(unsigned long long* semaphore) {
  asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(semaphore), "l"(1ull) : "memory");
}""",
)
ACQUIRE = Helper(
    "semaphore_acquire",
    """\
// wait until so many phases of count releases are complete
__device__ __forceinline__ void semaphore_acquire(unsigned long long* semaphore, unsigned long long count, unsigned long long phases) {
  while (counter_value(semaphore) < count * phases) {}
}""",
    (COUNTER_VALUE,),
)
BOUNDED_ACQUIRE = Helper(
    "semaphore_acquire_bounded",
    """\
__device__ __forceinline__ void semaphore_acquire_bounded(unsigned long long* semaphore, unsigned long long count, unsigned long long phases, Report* report,
                                                          int point, int slot) {
  const unsigned long long start = nanoseconds();
  while (counter_value(semaphore) < count * phases) {
    if (nanoseconds() - start > report->limit) report_timeout(report, point, slot, (int)phases - 1);
  }
}""",
    (COUNTER_VALUE, REPORT),
)

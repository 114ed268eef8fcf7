"""The resources of a compiled kernel, its occupancy, and the diagnostics of the assembler (``ptxas -v``).

Limits are those of :mod:`taskfuse.target`; rules of allocation those of NVIDIA's occupancy calculator (``cuda_occupancy.h`` of the CUDA toolkit).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from taskfuse.reports.resources import Resources
from taskfuse.target import LIMITS, MAX_THREADS, PARTITIONS, REGISTER_UNIT, REGISTERS, RESERVED_SHARED, SHARED_UNIT, WARP, Limits, capability

_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")
_ARGUMENTS = {"__internal_trig_reduction_slowpathd": 40}
"""Bytes of the stack through which kernels give arguments to functions of CUDA's library: that of sines of large float64 numbers (NVRTC 13.0)."""


def parse_resources(log: str, name: str) -> Resources | None:
    """The resources that ``log`` reports for kernel ``name`` and the functions that it calls; ``None`` if the form of the log is unknown.

    The form is that of NVRTC 13.0 to 13.5::

        ptxas info    : Compiling entry function 'k' for 'sm_90a'
        ptxas info    : Function properties for k
        ptxas         .     32 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
        ptxas info    : Used 18 registers, used 1 barriers, 32 bytes cumulative stack size, 40 bytes smem

    The last line omits numbers that are zero. Called functions that are not inlined follow, each with its properties.
    """
    start = log.find(f"Compiling entry function '{name}' ")
    if start < 0:
        return None
    end = log.find("Compiling entry function '", start + 1)
    section = log[start:] if end < 0 else log[start:end]
    frames, used = _SPILLS.findall(section), _USED.search(section)
    if not frames or used is None:
        return None

    def amount(unit: str) -> int:
        found = re.search(rf"(\d+) {unit}", used[2])
        return 0 if found is None else int(found[1])

    barriers = re.search(r"used (\d+) barriers", used[2])
    stack = amount("bytes cumulative stack size") or int(frames[0][0])
    stores = sum(int(stores) for _, stores, _ in frames)
    arguments = sum(taken for function, taken in _ARGUMENTS.items() if f"Function properties for {function}" in section)
    return Resources(
        registers=int(used[1]),
        static_shared=amount("bytes smem"),
        stack=stack,
        spill_stores=stores,
        spill_loads=sum(int(loads) for _, _, loads in frames),
        barriers=0 if barriers is None else int(barriers[1]),
        local_arrays=max(stack - stores - arguments, 0),  # a register that spills is stored once or more
    )


_LOSS = re.compile(r"ptxas (?:info|warning)\s*: (?:\(C\d+\) )?(.*(?:Potential Performance Loss|is injected in around line).*)")
_WARNING = re.compile(r"ptxas warning\s*: (.*)")

_SPILL_HELP = "give a thread less to hold: smaller unrolled or vectorized axes, fewer tensors inlined together, or more threads; Shared memory for the largest"
_WGMMA_HELP = "between an mma and the WaitGroup that covers it, nothing may touch its accumulator; see that the accumulators fit the registers of a thread"
_BUDGET_HELP = "registers(n) needs a launch shape that is constant, and budgets that fit it: blocks of a multiple of 128 threads"


class Diagnostic(NamedTuple):
    """A diagnostic of the machine code of a kernel.

    Attributes:
        text: the message.
        help: what to do about it; empty if nothing is known.
        of_registers: the register budget is broken: registers spill, ``wgmma`` waits for its registers, ``setmaxnreg`` is ignored.
        of_spills: registers spill.
    """

    text: str
    help: str = ""
    of_registers: bool = False
    of_spills: bool = False

    def __str__(self) -> str:
        return f"{self.text}\nhelp: {self.help}" if self.help else self.text


def diagnostics(log: str, resources: Resources | None) -> tuple[Diagnostic, ...]:
    """The complaints of ptxas in ``log``: spilled registers, serialized ``wgmma``, ignored ``setmaxnreg``, and other warnings."""
    found: dict[Diagnostic, None] = {}  # a set in order: ptxas says some things once for each place
    if resources is not None and resources.spill_stores + resources.spill_loads > 0:
        spills = f"{resources.spill_stores} bytes stored, {resources.spill_loads} loaded in the code of a thread"
        found[Diagnostic(f"registers spill to local memory: {spills}, at {resources.registers} registers", _SPILL_HELP, True, True)] = None
    for line in log.splitlines():
        match = _LOSS.match(line) or _WARNING.match(line)
        if match is None:
            continue
        said = re.sub(r"^Potential Performance Loss: | in around line \d+| in the function '[^']*'| in function '[^']*'| in line \d+", "", match[1])
        if "setmaxnreg" in said:
            found[Diagnostic(said, _BUDGET_HELP, True)] = None
        elif "wgmma" in said or "warpgroup" in said or "GMMA" in said:
            found[Diagnostic(said, _WGMMA_HELP, True)] = None
        else:
            found[Diagnostic(said)] = None
    return tuple(found)


def occupancy(resources: Resources, threads: int, shared: int, arch: str) -> int:
    """Resident blocks of one multiprocessor; 0 if not even one fits.

    Args:
        resources: of the compiled kernel.
        threads: threads of a block.
        shared: bytes of dynamic Shared memory of a block.
        arch: architecture: ``sm_90a``.

    Raises:
        UnsupportedError: the limits of ``arch`` are unknown.
    """
    machine = LIMITS[capability(arch)]
    if not 0 < threads <= MAX_THREADS:
        return 0
    warps = _ceil(threads, WARP)
    return min(machine.blocks, machine.warps // warps, _by_registers(resources.registers, warps), _by_shared(resources.static_shared + shared, machine))


def _by_registers(registers: int, warps: int) -> int:
    """Registers are given to warps, each in one partition. Whether a block fits at all is decided as if all partitions had equally many."""
    of_warp = _ceil(max(registers, 1) * WARP, REGISTER_UNIT) * REGISTER_UNIT
    if of_warp * _ceil(warps, PARTITIONS) * PARTITIONS > REGISTERS:
        return 0
    return REGISTERS // PARTITIONS // of_warp * PARTITIONS // warps


def _by_shared(bytes: int, machine: Limits) -> int:
    of_block = _ceil(bytes + RESERVED_SHARED, SHARED_UNIT) * SHARED_UNIT
    return machine.shared // of_block


def _ceil(a: int, b: int) -> int:
    return -(-a // b)

"""What cost models know of the GPU: measured on an H200; ``benchmarks/`` has the scripts that measure it again."""

from __future__ import annotations

from typing import Final

from taskfuse.ir.elementwise import DTypeRule

SMS: Final = 132
"""Streaming multiprocessors of an H200."""
LANES: Final = 128
"""Scalar instructions that a multiprocessor issues per cycle: four times 32 lanes (CUDA C++ Programming Guide, "Arithmetic Instructions")."""
CLOCK_MHZ: Final = 1700
"""Clock under load: the power limit holds it below the 1980 MHz that the chip reaches otherwise."""
DRAM_BYTES_PER_US: Final = 4.3e6
"""Measured by a pointwise kernel."""
LAUNCH_US: Final = 2.5
"""From one kernel of a graph to the next, barriers and first load included."""
LATENCY_CYCLES: Final = 2200
"""From a load to its value, under load; an estimate."""
VECTOR_BYTES: Final = 16
"""Bytes that a thread loads or stores at once at most."""
ASYNC_BYTES: Final = (4, 8, 16)
"""Bytes of an element, or of a vector, that ``cp.async`` copies."""
FUNCTIONS: Final = (DTypeRule.FLOAT, DTypeRule.DIVIDE)
"""The rules of functions that take many instructions, such as exponentials, roots and quotients: of what gives a float of anything."""
FUNCTION_COST: Final = 16
"""Instructions of such a function; arithmetic takes one. Assumed, not measured."""

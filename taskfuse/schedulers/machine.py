"""What schedulers know of instructions, on all GPUs alike; figures of one are in :mod:`taskfuse.target`."""

from __future__ import annotations

from typing import Final

VECTOR_BYTES: Final = 16
"""Bytes that a thread loads or stores at once at most."""
ASYNC_BYTES: Final = (4, 8, 16)
"""Bytes of an element, or of a vector, that ``cp.async`` copies."""

"""Where asynchronous engines and collectives find the elements of a tile: byte addresses and register fragments.

Sources: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout", "Matrix Fragments for wgmma", "Tensor swizzling modes".
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from taskfuse.kir.limits import WARPGROUP
from taskfuse.kir.nodes import Major

Ints = npt.NDArray[np.int64]
_CHUNK = 16  # bytes that a swizzle moves as one
_SWIZZLE_BITS = {0: 0, 32: 0x10, 64: 0x30, 128: 0x70}


def swizzled(addresses: Ints, span: int) -> Ints:
    """Byte addresses under a swizzle of ``span`` bytes: address bits [4:7) ^= [7:10) for 128, [4:6) ^= [7:9) for 64, [4] ^= [7] for 32."""
    return addresses ^ (addresses >> 3 & _SWIZZLE_BITS[span])


def swizzle_period(span: int) -> int:
    """Alignment in bytes that a swizzled tile needs: the period of the pattern, 128 without a swizzle."""
    return 8 * span if span else 128


@cache
def operand_offsets(rows: int, k: int, itemsize: int, swizzle: int, lbo: int, sbo: int, major: Major) -> Ints:
    """Byte offsets [rows, k] of a wgmma operand from its descriptor's address, before the swizzle.

    Without a swizzle, MN-major tiles have the roles of the two byte offsets exchanged: ``sbo`` leads along m or n, ``lbo`` along k.
    """
    r = np.arange(rows)[:, None]
    c = np.arange(k)[None, :]
    if major is Major.K:
        inner = c * itemsize
        if swizzle:
            return r % 8 * swizzle + r // 8 * sbo + inner
        return r % 8 * _CHUNK + r // 8 * sbo + inner // _CHUNK * lbo + inner % _CHUNK
    if swizzle:
        span = swizzle // itemsize
        return r % span * itemsize + r // span * lbo + c % 8 * swizzle + c // 8 * sbo
    span = _CHUNK // itemsize
    return r % span * itemsize + r // span * sbo + c % 8 * _CHUNK + c // 8 * lbo


@cache
def accumulator_fragment(n: int) -> tuple[Ints, Ints]:
    """Row and column [128, n/2] of register v of thread t in the 64 x n accumulator of a wgmma."""
    t = np.arange(WARPGROUP)[:, None]
    v = np.arange(n // 2)[None, :]
    rows = 16 * (t // 32) + t % 32 // 4 + 8 * (v // 2 % 2)
    columns = 8 * (v // 4) + 2 * (t % 4) + v % 2
    return rows, columns


@cache
def stmatrix_sources() -> tuple[Ints, Ints]:
    """For row l%8 of matrix l/8, whose address lane l gives: lane and register [32, 8] that hold its elements."""
    address_lane = np.arange(32)[:, None]
    element = np.arange(8)[None, :]
    lanes = address_lane % 8 * 4 + element // 2
    registers = 2 * (address_lane // 8) + element % 2
    return lanes, registers

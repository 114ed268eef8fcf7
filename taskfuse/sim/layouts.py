"""Where asynchronous engines find the elements of a tile in Shared memory.

Sources: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout", "Tensor swizzling modes".
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

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

"""Products of matrices by tensor cores: which element each register of each lane holds, and what is computed (PTX ISA, "Warp-level matrix instructions",
"Asynchronous warpgroup-level matrix instructions").

Products and sums are exact in float64 or nearly so, and rounded once to the type of the accumulator; tensor cores drop more bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.testing.ptx.floats import FORMATS, decoder, encoder

Array = NDArray[Any]
Read = Callable[[int, int], bytes]
"""Bytes of Shared memory: address and size."""
_BITS = {"f64": 64, "tf32": 32, "s32": 32, "s8": 8, "u8": 8, **{name: f.bits for name, f in FORMATS.items()}}
_SWIZZLES = {0: 0, 1: 128, 2: 64, 3: 32}
"""Bytes of a swizzle's span by the mode of a descriptor."""


def swizzled(address: int, span: int) -> int:
    """Where the bytes of an address are in Shared memory: the number of the 16 bytes in a span of 128, 64 or 32 is xored with the number of the row of 128
    bytes (PTX ISA, "Swizzling modes")."""
    return address ^ (address >> 7 & (span // 16 - 1)) << 4 if span else address


def _numbers(words: Sequence[int], kind: str) -> list[Any]:
    """The elements in registers."""
    bits = _BITS[kind]
    width = max(bits, 32)
    return [_number(w >> k & (1 << bits) - 1, kind) for w in words for k in range(0, width, bits)]


def _number(word: int, kind: str) -> Any:
    bits = _BITS[kind]
    if kind == "tf32":
        return decoder(FORMATS["f32"])(word & ~0x1FFF)
    if kind in FORMATS:
        return decoder(FORMATS[kind])(word)
    half = 1 << bits - 1
    return word if kind[0] == "u" else (word ^ half) - half


def _words(numbers: Sequence[Any], kind: str) -> tuple[int, ...]:
    """Registers with these elements."""
    bits = _BITS[kind]
    each = [encoder(FORMATS[kind])(float(x)) if kind in FORMATS else int(x) & (1 << bits) - 1 for x in numbers]
    per = max(32 // bits, 1)
    return tuple(sum(x << bits * j for j, x in enumerate(each[k : k + per])) for k in range(0, len(each), per))


def _of_kind(kind: str) -> type[Any]:
    return np.float64 if kind in _BITS and kind[0] not in "su" else np.int64


@cache
def _places(role: str, rows: int, per: int, count: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """For each lane, the row and column of each element of its ``count`` registers.

    Args:
        role: of ``a`` (m x k), ``b`` (k x n), or of the sums ``c`` (m x n).
        rows: 8 or 16 rows of ``a`` and ``c``.
        per: elements of a register; of ``c``, those are single.
    """
    found: list[tuple[tuple[int, int], ...]] = []
    for lane in range(32):
        group, member = lane >> 2, lane & 3
        match role:
            case "a":
                tall = rows // 8
                places = tuple((group + 8 * (r % tall), 4 * per * (r // tall) + member * per + j) for r in range(count) for j in range(per))
            case "b":
                places = tuple((4 * per * r + member * per + j, group) for r in range(count) for j in range(per))
            case _:
                tall = rows // 8
                places = tuple((group + 8 * (i // 2 % tall), 8 * (i // (2 * tall)) + 2 * member + i % 2) for i in range(count))
        found.append(places)
    return tuple(found)


def _gathered(lanes: Mapping[int, Sequence[int]], kind: str, role: str, rows: int, shape: tuple[int, int]) -> Array:
    """The matrix that the registers of 32 lanes hold."""
    matrix: Array = np.zeros(shape, _of_kind(kind))
    per = max(32 // _BITS[kind], 1) if role != "c" else 1
    for lane, words in lanes.items():
        numbers = _numbers(words, kind)
        for at, x in zip(_places(role, rows, per, len(numbers) // per)[lane], numbers, strict=True):
            matrix[at] = x
    return matrix


def _scattered(matrix: Array, kind: str, rows: int, count: int) -> dict[int, tuple[int, ...]]:
    """The registers of 32 lanes with a matrix of sums; ``count`` elements each."""
    places = _places("c", rows, 1, count)
    return {lane: _words([matrix[at] for at in places[lane]], kind) for lane in range(32)}


def mma(words: str, lanes: Mapping[int, Sequence[int]]) -> dict[int, tuple[int, ...]] | None:
    """``mma.sync``: the results of each lane from its registers of a, b and c; ``None``: a form that is not known."""
    if (pairs := re.fullmatch(r"m8n8k4\.(row|col)\.(row|col)\.(f16|f32)\.f16\.f16\.(f16|f32)", words)) is not None and pairs[3] == pairs[4]:
        return _of_quad_pairs(pairs[1] == "row", pairs[2] == "row", pairs[3], lanes)
    found = re.fullmatch(r"m(8|16)n8k(\d+)\.row\.col\.(\w+)\.(\w+)\.(\w+)\.(\w+)", words.removesuffix(".satfinite"))
    if found is None or words.endswith("satfinite") or len(lanes) != 32:
        return None
    m, k, out, a, b, acc = int(found[1]), int(found[2]), *found.groups()[2:]
    if not {out, a, b, acc} <= _BITS.keys() or (m == 8) != (a == "f64" and k == 4):
        return None
    counts = [m * k * _BITS[a] // 32 // max(32, _BITS[a]), k * 8 * _BITS[b] // 32 // max(32, _BITS[b]), m * 8 * _BITS[acc] // 32 // max(32, _BITS[acc])]
    if any(len(data) != sum(counts) for data in lanes.values()):
        return None
    ends = counts[0], counts[0] + counts[1]
    left = _gathered({n: d[: ends[0]] for n, d in lanes.items()}, a, "a", m, (m, k))
    right = _gathered({n: d[ends[0] : ends[1]] for n, d in lanes.items()}, b, "b", m, (k, 8))
    sums = _gathered({n: d[ends[1] :] for n, d in lanes.items()}, acc, "c", m, (m, 8))
    return _scattered(sums + left @ right, out, m, m * 8 // 32)


def _of_quad_pairs(a_by_rows: bool, b_by_rows: bool, kind: str, lanes: Mapping[int, Sequence[int]]) -> dict[int, tuple[int, ...]] | None:
    """Four products of 8 x 8 x 4, each by two groups of four lanes that are 16 apart (PTX ISA, "Matrix Fragments for mma.m8n8k4")."""
    sums = 8 * _BITS[kind] // 32
    if len(lanes) != 32 or any(len(data) != 4 + sums for data in lanes.values()):
        return None
    found: dict[int, tuple[int, ...]] = {}
    for pair in range(4):
        members = [4 * pair + k + 16 * half for half in (0, 1) for k in range(4)]
        left, right, total = np.zeros((8, 4)), np.zeros((4, 8)), np.zeros((8, 8))
        for lane in members:
            k, far = lane % 4, 4 * (lane >= 16)
            for i, (x, y) in enumerate(zip(_numbers(lanes[lane][:2], "f16"), _numbers(lanes[lane][2:4], "f16"), strict=True)):
                left[(k + far, i) if a_by_rows else (i + far, k)] = x
                right[(k, i + far) if b_by_rows else (i, k + far)] = y
            for at, x in zip(_sums_of_pair(lane, kind), _numbers(lanes[lane][4:], kind), strict=True):
                total[at] = x
        total += left @ right
        found |= {lane: _words([total[at] for at in _sums_of_pair(lane, kind)], kind) for lane in members}
    return found


def _sums_of_pair(lane: int, kind: str) -> list[tuple[int, int]]:
    """The rows and columns of the sums that a lane holds."""
    far = 4 * (lane >= 16)
    if kind == "f16":
        return [(lane % 4 + far, i) for i in range(8)]
    return [((lane & 1) + (i & 2) + far, (i & 4) + (lane & 2) + (i & 1)) for i in range(8)]


def load_matrices(words: str, addresses: Mapping[int, int], read: Read) -> dict[int, tuple[int, ...]] | None:
    """``ldmatrix``: matrices of 8 rows of 16 bytes; the addresses of the rows of the k-th come from lanes 8k to 8k + 7."""
    form = _matrices(words)
    if form is None or len(addresses) != 32:
        return None
    count, transposed = form
    loaded = [np.frombuffer(b"".join(read(addresses[8 * k + r], 16) for r in range(8)), np.uint16).reshape(8, 8) for k in range(count)]
    found: dict[int, tuple[int, ...]] = {}
    for lane in range(32):
        row, column = lane >> 2, 2 * (lane & 3)
        pairs = [(m[column, row], m[column + 1, row]) if transposed else (m[row, column], m[row, column + 1]) for m in loaded]
        found[lane] = tuple(int(low) | int(high) << 16 for low, high in pairs)
    return found


def store_matrices(words: str, addresses: Mapping[int, int], lanes: Mapping[int, Sequence[int]]) -> list[tuple[int, bytes]] | None:
    """``stmatrix``: the rows to store and their addresses, as of :func:`load_matrices`."""
    form = _matrices(words)
    if form is None or len(addresses) != 32:
        return None
    count, transposed = form
    found: list[tuple[int, bytes]] = []
    for k in range(count):
        matrix = np.zeros((8, 8), np.uint16)
        for lane in range(32):
            row, column = lane >> 2, 2 * (lane & 3)
            matrix[row, column], matrix[row, column + 1] = lanes[lane][k] & 0xFFFF, lanes[lane][k] >> 16
        matrix = matrix.T if transposed else matrix
        found += [(addresses[8 * k + r], matrix[r].tobytes()) for r in range(8)]
    return found


def _matrices(words: str) -> tuple[int, bool] | None:
    found = re.fullmatch(r"m8n8\.x([124])(\.trans)?\.shared(?:::cta)?\.b16", words)
    return None if found is None else (int(found[1]), found[2] is not None)


# -- products of a warpgroup ------------------------------------------------------------------------------------------------------------


def wgmma(
    words: str, operands: Sequence[int], sums: Mapping[int, Sequence[int]], left: Mapping[int, Sequence[int]] | None, read: Read
) -> dict[int, tuple[int, ...]] | None:
    """``wgmma.mma_async``: the results of each of 128 threads; ``None``: a form that is not known.

    Args:
        operands: descriptor of a (-1: registers), descriptor of b, whether to accumulate, then immediates: signs of a and b, whether a and b are transposed.
        sums, left: registers of each thread.
    """
    found = re.fullmatch(r"m64n(\d+)k(\d+)\.(\w+)\.(\w+)\.(\w+)", words)
    if found is None or len(sums) != 128:
        return None
    n, k, out, a, b = int(found[1]), int(found[2]), *found.groups()[2:]
    descriptor_a, descriptor_b, accumulate, *immediates = operands
    if not {out, a, b} <= _BITS.keys() or k * _BITS[a] != 256 or any(x & 0xFFFFFFFF != 1 for x in immediates[:2]):
        return None
    transposed = [*immediates[2:], 0, 0]
    is_b_transposed = bool(transposed[0 if left is not None else 1])
    right = _from_shared(descriptor_b, n, k, b, is_b_transposed, read).T
    if left is None:
        tile = _from_shared(descriptor_a, 64, k, a, bool(transposed[0]), read)
    else:
        tile = np.concatenate([_gathered({t % 32: left[t] for t in range(32 * w, 32 * w + 32)}, a, "a", 16, (16, k)) for w in range(4)])
    product = tile @ right
    results: dict[int, tuple[int, ...]] = {}
    for w in range(4):
        rows = product[16 * w : 16 * w + 16]
        if accumulate:
            rows = rows + _gathered({t % 32: sums[t] for t in range(32 * w, 32 * w + 32)}, out, "c", 16, (16, n))
        results |= {32 * w + lane: words for lane, words in _scattered(rows, out, 16, n // 2).items()}
    return results


def _from_shared(descriptor: int, extent: int, k: int, kind: str, transposed: bool, read: Read) -> Array:
    """The matrix (extent x k) that a descriptor names (PTX ISA, "Shared Memory Matrix Layout", "Strides"); without transposition, k is consecutive."""
    start, leading, stride = (descriptor >> at & 0x3FFF for at in (0, 16, 32))
    start, leading, stride = start << 4, leading << 4, stride << 4
    span = _SWIZZLES[descriptor >> 62 & 3]
    size = _BITS[kind] // 8
    per = 16 // size
    matrix: Array = np.zeros((extent, k), _of_kind(kind))
    for i in range(extent):
        for j in range(k):
            if not transposed:
                at = (i % 8) * (span or 16) + i // 8 * stride + (j * size if span else j // per * leading + j % per * size)
            elif span:
                wide = span // size
                at = i % wide * size + i // wide * leading + j % 8 * span + j // 8 * stride
            else:
                at = i % per * size + i // per * stride + j % 8 * 16 + j // 8 * leading
            matrix[i, j] = _number(int.from_bytes(read(swizzled(start + at, span), size), "little"), kind)
    return matrix

"""Attention of sequences of unequal length as one walk: right for lengths of 0, 1 and primes, proved for all tables, also for hostile ones."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import taskfuse as tf
from taskfuse.errors import SimulationError, UnsupportedError
from taskfuse.schedule.parts import Parts
from taskfuse.schedule.repairs import depends
from taskfuse.schedulers import AttentionConfig
from taskfuse.schedulers.attention_math import find
from tests.ops.attended import attended, cuts, paged, random
from tests.proofs import proved
from tests.schedulers.raggeds import paged_attention, varlen_attention
from tests.testing.ptx.compiled import compared

OF_Q, OF_K = [0, 1, 67, 64, 3, 0, 31], [5, 0, 37, 101, 3, 4, 1]
OF_MORE = [0, 1, 131, 256, 3, 0, 61], [5, 0, 67, 331, 3, 4, 1]
BF16 = tf.bfloat16.numpy


def rows(of_q: Sequence[int], of_k: Sequence[int], heads: int = 2, key_heads: int = 1, depth: int = 32) -> list[NDArray[Any]]:
    """Random queries, keys and values."""
    return [random((sum(of), n, depth), BF16) for of, n in ((of_q, heads), (of_k, key_heads), (of_k, key_heads))]


def close(found: NDArray[Any], wanted: NDArray[Any]) -> None:
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2e-2, atol=2e-2)


@cache
def walk(is_causal: bool, blocks: int = 0) -> tf.Kernel:
    """Four sequences of 200 queries and 300 keys; proved."""
    fusion = varlen_attention(200, 300, 4, tile=64, is_causal=is_causal)
    tf.schedulers.attention(fusion, AttentionConfig(1, 32, 2, blocks=blocks))
    return proved(tf.lower(fusion))


@pytest.mark.parametrize(
    ("tile", "config", "is_causal"),
    [
        (64, AttentionConfig(1, 32, 2), False),
        (64, AttentionConfig(1, 64, 3, blocks=3), True),
        (128, AttentionConfig(2, 64, 2), True),
        (128, AttentionConfig(1, 128, 2), False),  # two blocks for each tile
    ],
)
def test_sequences(tile: int, config: AttentionConfig, is_causal: bool) -> None:
    own = (OF_Q, OF_K) if tile == 64 else OF_MORE
    fusion = varlen_attention(sum(own[0]), sum(own[1]), 7, tile=tile, is_causal=is_causal)
    tf.schedulers.attention(fusion, config)
    kernel = proved(tf.lower(fusion))
    assert not [b for b in kernel.buffers if b.memory is tf.MemoryType.Global]
    for of_q, of_k in (own, ([sum(own[0]), *[0] * 6], [*[0] * 6, sum(own[1])])):
        q, k, v = rows(of_q, of_k)
        (found,) = kernel.simulate(q, k, v, cuts(of_q), cuts(of_k), seed=2)
        close(found, attended(q, k, v, cuts(of_q), cuts(of_k), is_causal))


def test_any_number_of_rows_and_lengths() -> None:
    """Numbers of rows are symbols, and tables have lengths, not offsets."""
    fusion = varlen_attention(tf.dim("M", min=64), tf.dim("N", min=1), 7, tile=64, is_causal=True, lengths=True)
    tf.schedulers.attention(fusion, AttentionConfig(1, 32, 2))
    kernel = proved(tf.lower(fusion))
    for of_q, of_k in (([0, 0, 64, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0]), ([1, 2, 3, 5, 7, 11, 61], [61, 11, 7, 5, 3, 2, 1])):
        q, k, v = rows(of_q, of_k)
        (found,) = kernel.simulate(q, k, v, np.array(of_q, np.int32), np.array(of_k, np.int32))
        close(found, attended(q, k, v, cuts(of_q), cuts(of_k), True))


@pytest.mark.parametrize("blocks", [0, 2])
def test_walks_end_with_their_sequence(blocks: int) -> None:
    """Those of loads and of products, by the table of the keys; causal ones by that of the queries, too."""
    for kernel in (walk(False), walk(True, blocks)):
        walks = [stop for stop in re.findall(r"FOR \w+ in 0\.\.(.*):", str(kernel)) if "of_k[" in stop]
        assert len(walks) == 2
        assert walks[0] == walks[1]
        assert "ceildiv(" in walks[0]


def test_windows() -> None:
    """A tile walks over the keys of its windows alone; that this is what was written is shown too."""
    window = 40
    fusion = varlen_attention(sum(OF_Q), sum(OF_K), 7, tile=64, is_causal=True, window=window)
    tf.schedulers.attention(fusion, AttentionConfig(1, 32, 2))
    kernel = tf.lower(fusion)
    certificate = kernel.verify()
    certificate.require()
    assert not any("what was written" in a for a in certificate.assumptions)
    of_q, of_k = [3, 0, sum(OF_Q) - 3, *[0] * 4], [20, 0, sum(OF_K) - 20, *[0] * 4]
    q, k, v = rows(of_q, of_k)
    (found,) = kernel.simulate(q, k, v, cuts(of_q), cuts(of_k), seed=2)
    close(found, attended(q, k, v, cuts(of_q), cuts(of_k), True, window))


def finding(kernel: tf.Kernel, *args: NDArray[Any]) -> str | None:
    """What the simulator says of a run; ``None`` if all its results are finite."""
    try:
        (found,) = kernel.simulate(*args, seed=3)
    except SimulationError as error:
        return str(error)
    return None if np.isfinite(found.astype(np.float64)).all() else "not finite"


HOSTILE: list[list[int]] = [
    [0, 60, 60, 130, 200],
    [300, 130, 60, 60, 0],
    [-7] * 5,
    [10**9] * 5,
    [2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 0],
    [5, -200, 200, 33, 7],
]


@pytest.mark.parametrize("blocks", [0, 2])
def test_no_table_makes_a_kernel_leave_its_tensors_or_hang(blocks: int) -> None:
    kernel, args = walk(True, blocks), rows([200], [300])
    for k, of_q in enumerate(HOSTILE):
        for of_k in (HOSTILE[0], HOSTILE[k - 1]):
            tables = np.array(of_q, np.int32), np.array(of_k, np.int32)
            said = finding(kernel, *args, *tables)
            assert said is None or (k and "were not written" in said)  # rows that no sequence has: the kernel has ended, and left no tensor


# -- pages --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "depth", "queries", "config"),
    [
        (16, 32, 1, AttentionConfig(1, 64, 2)),
        (16, 128, 5, AttentionConfig(1, 128, 2)),
        (64, 64, 70, AttentionConfig(1, 64, 3)),
        (256, 32, 5, AttentionConfig(1, 64, 2)),
        (64, 32, 5, AttentionConfig(1, 128, 2, blocks=2)),
    ],
)
def test_pages(size: int, depth: int, queries: int, config: AttentionConfig) -> None:
    batch, each, pages = 3, 256 // size, 11
    fusion = paged_attention(batch, 2, 2, queries, depth, pages, size, each, is_causal=True)
    tf.schedulers.attention(fusion, config)
    kernel = proved(tf.lower(fusion))
    assert not [b for b in kernel.buffers if b.memory is tf.MemoryType.Global]
    q, k, v = random((batch, 2, queries, depth), BF16), *(random((pages, size, 2, depth), BF16) for _ in range(2))
    for lengths in ([0, 1, 256], [97, 64, 131], [-3, 2**31 - 1, -(2**31)]):
        table = np.random.default_rng(lengths[1]).integers(-2, pages + 3, batch * each).astype(np.int32)
        (found,) = kernel.simulate(q, k, v, table, np.array(lengths, np.int32), seed=1)
        close(found, paged(q, k, v, table, np.clip(lengths, 0, 256), True))


def test_any_number_of_sequences_and_pages() -> None:
    with tf.Fusion("symbols") as fusion:
        q = tf.define_tensor([tf.dim("B", min=1), 2, 3, 32], tf.bfloat16, name="q")
        k, v = (tf.define_tensor([tf.dim("P", min=1), 16, 2, 32], tf.bfloat16, name=name) for name in "kv")
        pages, lengths = tf.table("pages", "B*T", high="P - 1"), tf.table("lengths", "B", high="16*T")
        fusion.add_output(tf.paged_attention(q, k, v, pages, lengths, is_causal=True))
    tf.schedulers.attention(fusion, AttentionConfig(1, 64, 2))
    kernel = proved(tf.lower(fusion))
    for counts, each in (([200, 57], 16), ([5], 1), ([0, 33, 47], 3)):
        args = random((len(counts), 2, 3, 32), BF16), *(random((9, 16, 2, 32), BF16) for _ in range(2))
        table = np.arange(len(counts) * each, dtype=np.int32) % 9
        (found,) = kernel.simulate(*args, table, np.array(counts, np.int32))
        close(found, paged(args[0], args[1], args[2], table, np.array(counts), True))


def test_chunks_of_pages_side_by_side() -> None:
    fusion = paged_attention(2, 2, 2, 3, 32, 9, 16, 16, is_causal=True)
    made = tf.chunk_cascade(find(fusion).reductions, 2, 64)
    chunks = Parts(fusion).extract([e.output for e in fusion.exprs() if any(depends(fusion, tv, (e.output,)) for tv in made)], "chunks")
    q, k, v = random((2, 2, 3, 32), BF16), *(random((9, 16, 2, 32), BF16) for _ in range(2))
    args = q, k, v, np.arange(32, dtype=np.int32) % 9, np.array([200, 57], np.int32)
    with np.errstate(all="ignore"):
        wanted = chunks.evaluate(*args)
    tf.schedulers.attention(chunks, AttentionConfig(1, 64, 2))
    kernel = proved(tf.lower(chunks))
    for found, expected in zip(kernel.simulate(*args), wanted, strict=True):
        close(found, expected.astype(np.float64))


def test_pages_that_no_box_has() -> None:
    fusion = paged_attention(2, 2, 2, 1, 32, 9, 4, 16)
    with pytest.raises(UnsupportedError, match="multiple of 8 keys"):
        tf.schedulers.attention(fusion, AttentionConfig(1, 64, 2))


def test_the_choice_of_compile() -> None:
    """One kernel of unequal sequences; few queries over many pages in chunks; and what no walk takes is computed all the same."""
    run = tf.compile(varlen_attention(1024, 1024, 8, heads=4, key_heads=2, depth=64, is_causal=True), backend="sim")
    assert run.schedule is not None
    assert run.schedule.explain().startswith("attention ")
    run = tf.compile(paged_attention(8, 32, 8, 4, 128, 4096, 64, 512, is_causal=True), backend="sim", budget=60)
    assert len(run.kernels) == 2
    small = paged_attention(2, 4, 2, 3, 32, 9, 4, 16, is_causal=True)
    q, k, v = random((2, 4, 3, 32), BF16), *(random((9, 4, 2, 32), BF16) for _ in range(2))
    table, lengths = np.arange(32, dtype=np.int32) % 9, np.array([61, 5], np.int32)
    (found,) = tf.compile(small, backend="sim")(q, k, v, table, lengths)
    close(found, paged(q, k, v, table, lengths, True))


def sequences() -> tf.Kernel:
    return walk(False)


@cache
def in_pages() -> tf.Kernel:
    fusion = paged_attention(2, 2, 2, 3, 32, 9, 16, 16, is_causal=True)
    tf.schedulers.attention(fusion, AttentionConfig(1, 64, 2))
    return proved(tf.lower(fusion))


@pytest.mark.parametrize("make", [sequences, in_pages])
def test_the_machine_code_does_what_the_kernel_says(make: Callable[[], tf.Kernel]) -> None:
    assert compared(make()).difference is None


FAULTS: dict[str, tuple[Callable[[], tf.Kernel], str, str]] = {
    "keys of the next sequence": (sequences, r"of 5\], 0, 300\), 0, 0\) on ch1", "+ 1 of 5], 0, 300), 0, 0) on ch1"),
    "keys of the next chunk": (sequences, r"map\(32\*i11 \+ clamp\(of_k(.*on ch2)", r"map(32*i11 + 32 + clamp(of_k\1"),
    "no mask where it cuts": (sequences, r"IF 32\*i11 \+ 31 <", "IF 32*i11 + 30 <"),
    "a chunk less": (sequences, r"(FOR i11 in 0\.\.)(.*):", r"\1max(\2 - 1, 0):"),
    "another page": (in_pages, r"4\*i11 \+ (i\d+) of 32", r"4*\1 + i11 of 32"),
    "other rows of a page": (in_pages, r"0, 8\), 0, blockIdx", "0, 8), 8, blockIdx"),
    "one key more": (in_pages, r"(keys\(.* if [^<]*) < ", r"\1 <= "),
    "no causal mask where it cuts": (in_pages, r"(IF .*&& 64\*i11 \+ )63 <", r"\g<1>62 <"),
    "the last chunk left out": (in_pages, r"0\.\.ceildiv\((clamp\(lengths.*), 64\):", r"0..\1//64:"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_kernels_have_no_proof(name: str) -> None:
    make, old, new = FAULTS[name]
    text = make().text(witness=True)
    wrong, count = re.subn(old, new, text)
    assert count
    assert not tf.parse_kernel(wrong).verify().is_proved

"""Statements that reach other blocks of a cluster: text, rules, traversal, and which blocks they reach."""

from dataclasses import replace
from pathlib import Path

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.errors import ParseError, VerifyError
from taskfuse.ir.scalar import const, sym
from taskfuse.kir import map_expressions, walk
from taskfuse.kir.clusters import cluster_threads, constant_shape, is_of_clusters, needs_cluster, peers, reached, reaches, remote_barriers
from taskfuse.kir.nodes import TmaLoad
from taskfuse.kir.synchronization import Arrive, Barrier, BarrierScope, MbarrierScope, Wait
from tests.lowering.over_clusters import exchange, meet

TEXT = (Path(__file__).parents[1] / "kernels" / "share.kir").read_text(encoding="utf-8")


def changed(*pairs: tuple[str, str]) -> tf.Kernel:
    text = TEXT
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return tf.parse_kernel(text)


def test_the_text_is_read_back() -> None:
    kernel = tf.parse_kernel(TEXT)
    kernel.check_ir()
    assert f"{kernel}\n" == TEXT
    assert [s.across for s in walk(kernel) if isinstance(s, Arrive | TmaLoad)] == [(P.CIDx,), (P.CIDx,)]
    assert [s.threads for s in walk(kernel) if isinstance(s, Barrier) and s.scope is BarrierScope.CLUSTER] == [const(128)] * 2


def test_several_types() -> None:
    kernel = changed(("GRID (4, 1, 1)", "GRID (4, 2, 1)"), ("CLUSTER (2, 1, 1)", "CLUSTER (2, 2, 1)"), ("across CIDx", "across CIDx, CIDy"))
    kernel.check_ir()
    assert tf.parse_kernel(str(kernel)) == kernel
    assert "ARRIVE empty[c.slot] across CIDx, CIDy" in str(kernel)


def test_expressions_are_mapped_and_the_types_kept() -> None:
    kernel = tf.parse_kernel(TEXT)
    for s in walk(kernel):
        assert map_expressions(s, lambda e: e) == s
    (load,) = (s for s in walk(kernel) if isinstance(s, TmaLoad))
    moved = map_expressions(load, lambda e: e + 1)
    assert isinstance(moved, TmaLoad)
    assert (moved.across, moved.barrier.slot) == ((P.CIDx,), sym("p.slot") + 1)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ((("across CIDx", "across BIDx"),), "BIDx is not a cluster type"),
        ((("across CIDx", "across CIDy, CIDx"),), "cluster types stand in the order CIDx, CIDy, CIDz, each once"),
        ((("across CIDx", "across CIDx, CIDx"),), "cluster types stand in the order CIDx, CIDy, CIDz, each once"),
        ((("CLUSTER (2, 1, 1)", "CLUSTER (N, 1, 1)"), ("SYNC cluster", "SYNC cluster 64*N")), "the shape of the cluster is not constant"),
        ((("GRID (4, 1, 1)", "GRID (8, 4, 1)"), ("CLUSTER (2, 1, 1)", "CLUSTER (8, 4, 1)")), "a cluster of 32 blocks; at most 16 are possible"),
        ((("CLUSTER (2, 1, 1)", "CLUSTER (8, 1, 1)"),), "4 blocks along x are not a multiple of the 8 of a cluster"),
        ((("SYNC cluster", "SYNC cluster 64"),), "a cluster barrier of 64 threads in clusters of 128"),
    ],
)
def test_rules(pairs: tuple[tuple[str, str], ...], message: str) -> None:
    with pytest.raises(VerifyError) as caught:
        changed(*pairs).check_ir()
    assert message in str(caught.value)


def test_only_named_barriers_have_an_id() -> None:
    kernel = tf.parse_kernel(TEXT)
    wrong = replace(kernel, body=(Barrier(BarrierScope.CLUSTER, const(128), const(1)),))
    with pytest.raises(VerifyError, match="a cluster barrier has no id"):
        wrong.check_ir()


def test_a_type_that_there_is_not() -> None:
    with pytest.raises(ParseError, match="cluster type"):
        changed(("across CIDx", "across everything"))


def test_who_is_reached() -> None:
    assert peers((1, 0, 0), (2, 1, 1), (P.CIDx,)) == (0, 1)
    assert peers((1, 2, 0), (2, 3, 1), (P.CIDx,)) == (4, 5)
    assert peers((1, 2, 0), (2, 3, 1), (P.CIDy,)) == (1, 3, 5)
    assert peers((1, 2, 1), (2, 3, 2), (P.CIDx, P.CIDy)) == (6, 7, 8, 9, 10, 11)
    assert peers((1, 2, 1), (2, 3, 2), (P.CIDz,)) == (5, 11)
    assert peers((0, 0, 0), (2, 2, 1), ()) == (0,)
    cluster = (const(2), const(3), const(1))
    assert reached(cluster, (P.CIDy,)) is const(3)
    assert reached(cluster, ()) is const(1)
    assert cluster_threads((const(32), const(2), const(1)), cluster) is const(384)
    assert constant_shape(cluster) == (2, 3, 1)
    assert constant_shape((sym("N"), const(1), const(1))) is None


def test_what_needs_a_cluster() -> None:
    kernel = tf.parse_kernel(TEXT)
    assert sum(map(needs_cluster, walk(kernel))) == 4
    assert remote_barriers(walk(kernel)) == {"full", "empty"}


def test_buffers_by_rank_are_read_back() -> None:
    kernel = exchange()
    kernel.check_ir()
    assert "CLUSTER s: float32[2, 32] align 16 @ 0" in str(kernel)
    assert tf.parse_kernel(kernel.text(witness=True)) == kernel
    (buffer,) = kernel.buffers
    assert [str(e) for e in buffer.extents_of_block] == ["32"]
    assert buffer.bytes_of_block is const(128)
    assert is_of_clusters(kernel)
    assert [reaches(s, {"s"}) for s in walk(kernel)] == [True, False, True, False]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("float32[2, 32] align", "float32[4, 32] align"), "'s' has 4 on its first axis, which says the block of a cluster of 2"),
        (("CLUSTER (2, 1, 1)", "CLUSTER (4, 1, 1)"), "'s' has 2 on its first axis, which says the block of a cluster of 4"),
        (
            ("align 16 @ 0\n", "align 16 @ 0\n  SHARED t: float32[1] align 16 @ 112\n"),
            "'s', which other blocks of the cluster access, may share bytes with 't'",
        ),
        (("align 16 @ 0\n", "align 16 @ 0\n  SHARED t: float32[1]\n"), "'s', which other blocks of the cluster access, may share bytes with 't'"),
    ],
)
def test_buffers_by_rank_are_of_the_cluster(change: tuple[str, str], message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        exchange(change).check_ir()


def test_buffers_by_rank_may_lie_side_by_side() -> None:
    exchange(("align 16 @ 0\n", "align 16 @ 0\n  SHARED t: float32[1] align 16 @ 128\n")).check_ir()


def test_scopes_of_arrivals_and_waits() -> None:
    kernel = meet()
    kernel.check_ir()
    assert [s.scope for s in walk(kernel) if isinstance(s, Arrive | Wait)] == [MbarrierScope.CLUSTER] * 2
    assert "ARRIVE m[m.c.slot] across CIDx scope cluster\n" in str(kernel)
    assert "WAIT m[m.c.slot] parity m.c.parity scope cluster\n" in str(kernel)
    assert tf.parse_kernel(kernel.text(witness=True)) == kernel
    with pytest.raises(VerifyError, match="an arrival at the scope of the cluster reaches other blocks: across"):
        meet(("across CIDx scope", "scope")).check_ir()
    with pytest.raises(ParseError, match="there is no scope 'grid'"):
        meet(("parity scope cluster", "parity scope grid"))

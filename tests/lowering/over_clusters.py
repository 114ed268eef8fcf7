"""Fusions whose data crosses the blocks of a cluster: sums over CIDx, and elements of other blocks."""

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from tests.lowering.running import bind

S, TX, TY, BX, BY, CX, CY = P.Serial, P.TIDx, P.TIDy, P.BIDx, P.BIDy, P.CIDx, P.CIDy


def row_sums(blocks: int = 4, threads: int = 64, rows: int = 1) -> tf.Fusion:
    """Sums of rows, each of a cluster's blocks a part of each; a cluster has several rows in turn."""
    with tf.Fusion("rowsum") as fusion:
        y = tf.sum(tf.define_tensor(["B", "N"], name="x"), axis=1)
        fusion.add_output(y)
    y.split(1, threads).split(1, blocks)  # [row, trip, block, thread]
    if rows > 1:
        y.split(0, rows)
        bind(y, BX, S, S, CX, TX)
    else:
        bind(y, BX, S, CX, TX)
    return fusion


def softmax(blocks: int = 4, columns: int = 512) -> tf.Fusion:
    """Softmax of rows that the blocks of a cluster hold in registers."""
    with tf.Fusion("softmax") as fusion:
        fusion.add_output(tf.softmax(tf.define_tensor(["B", columns], name="x"), axis=1))
    for tv in fusion.tensors():
        if tv.is_input:
            continue
        if len(tv.loop) == 2 and str(tv.loop[1].extent) == str(columns):
            tv.split(1, 64).split(1, blocks)
            bind(tv, BX, S, CX, TX)
        else:
            tv.axis(0).parallelize(BX)
    fusion.inline_most()
    return fusion


def shares(blocks: int = 4, rows: int = 256, columns: int = 64) -> tf.Fusion:
    """Sums of columns: each block sums a part of the rows, then all parts of a share of the columns."""
    with tf.Fusion("shares") as fusion:
        y = tf.sum(tf.define_tensor([rows, columns], name="x"), axis=0)
        fusion.add_output(y)
    y.split(0, rows // blocks)
    part = y.rfactor([1])
    bind(part, CX, S, TX)
    y.split(1, columns // blocks)
    bind(y, S, CX, TX)
    return fusion


def crossing(memory: MemoryType | None = None) -> tf.Fusion:
    """Each block reads what another one has computed."""
    with tf.Fusion("crossing") as fusion:
        a = tf.neg(tf.define_tensor([4, 32], name="x"))
        y = tf.flip(a, 0) * 2.0
        fusion.add_output(y)
    for tv in (a, y):
        bind(tv, CX, TX)
    if memory is not None:
        a.set_memory_type(memory)
    return fusion


def in_a_role(blocks: int = 4) -> tf.Fusion:
    """Sums of rows in the second of two roles, whose threads are not all of their blocks."""
    with tf.Fusion("in_a_role") as fusion:
        x = tf.define_tensor([8, blocks, 64], name="x")
        doubled = x * 2.0
        y = tf.sum(doubled, axis=[1, 2])
        fusion.add_output(y)
    bind(doubled, BX, CX, TX)
    bind(y, BX, CX, TX)
    tasks = [fusion.task([doubled], "make"), fusion.task([y], "add")]
    doubled.inline_at(2)
    fusion.group(tasks, "roles").parallelize(TY)
    return fusion


XOR = """KERNEL exchange(x: float32[{rows}, 32]) -> (y: float32[{rows}, 32])
{dims}  GRID ({rows}, 1, 1)  BLOCK (32, 1, 1)  CLUSTER (2, 1, 1)
  CLUSTER s: float32[2, 32] align 16 @ 0
  DEFINE s: float32[{rows}, 32] = copy(x[i0, i1])
  DEFINE y: float32[{rows}, 32] = copy(s[i0 + 1 - 2*(i0 % 2), i1])

s[clusterIdx.x, threadIdx.x] = copy(x[blockIdx.x, threadIdx.x])  ~ value s[blockIdx.x, threadIdx.x]
SYNC cluster
y[blockIdx.x, threadIdx.x] = copy(s[1 - clusterIdx.x, threadIdx.x])  ~ value y[blockIdx.x, threadIdx.x]
SYNC cluster
"""


def exchange(*changes: tuple[str, str], symbolic: bool = False) -> tf.Kernel:
    """A kernel whose blocks read what the other block of their cluster has stored in its Shared memory; with some changes of its text."""
    return _changed(XOR.format(rows="2*C", dims="  DIM C min 1\n") if symbolic else XOR.format(rows=4, dims=""), changes)


UNORDERED = ("SYNC cluster\ny", "y")
OF_A_BLOCK = ("SYNC cluster\ny", "SYNC block\ny")
EARLY_EXIT = ("~ value y[blockIdx.x, threadIdx.x]\nSYNC cluster\n", "~ value y[blockIdx.x, threadIdx.x]\n")
OWN = ("copy(s[1 - clusterIdx.x", "copy(s[clusterIdx.x")
OUTSIDE = ("copy(s[1 - clusterIdx.x", "copy(s[2 - clusterIdx.x")
STORED_THERE = (("\ns[clusterIdx.x, threadIdx.x]", "\ns[1 - clusterIdx.x, threadIdx.x]"), OWN)


MEET = """KERNEL meet(x: float32[4, 64]) -> (y: float32[4, 64])
  GRID (4, 1, 1)  BLOCK (64, 1, 1)  CLUSTER (2, 1, 1)
  CLUSTER s: float32[2, 64] align 16 @ 0
  MBARRIER m[2]
  DEFINE s: float32[4, 64] = copy(x[i0, i1])
  DEFINE y: float32[4, 64] = copy(s[i0 + 1 - 2*(i0 % 2), 63 - i1])

IF threadIdx.x == 0:
  INIT m[0] count 2
  INIT m[1] count 2
SYNC cluster
m.c = CURSOR(slots 2, slot 0, parity 0)
FOR i in 0..2:
  s[clusterIdx.x, threadIdx.x] = copy(x[blockIdx.x, threadIdx.x])  ~ value s[blockIdx.x, threadIdx.x]
  SYNC block  # before
  IF threadIdx.x == 0:
    ARRIVE m[m.c.slot] across CIDx scope cluster
    WAIT m[m.c.slot] parity m.c.parity scope cluster
  m.c.advance(1)
  SYNC block  # after
  y[blockIdx.x, threadIdx.x] = copy(s[1 - clusterIdx.x, 63 - threadIdx.x])  ~ value y[blockIdx.x, threadIdx.x]
  SYNC cluster
"""
NOT_BEFORE, NOT_AFTER = ("  SYNC block  # before\n", ""), ("  SYNC block  # after\n", "")
RELEASE_IN_BLOCK, ACQUIRE_IN_BLOCK = ("across CIDx scope cluster", "across CIDx"), ("m.c.parity scope cluster", "m.c.parity")
TOO_FEW = ("INIT m[0] count 2", "INIT m[0] count 1")
ONE_SLOT = ("CURSOR(slots 2", "CURSOR(slots 1")
SOMETIMES = ("IF threadIdx.x == 0:\n    ARRIVE", "IF threadIdx.x == 0 && i == 0:\n    ARRIVE")


def meet(*changes: tuple[str, str]) -> tf.Kernel:
    """A kernel of which one thread of each block meets that of the other one, and all others through it; with some changes of its text."""
    return _changed(MEET, changes)


def _changed(text: str, changes: tuple[tuple[str, str], ...]) -> tf.Kernel:
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return tf.parse_kernel(text)

"""Loops over numbers that blocks claim: a table of owners to the proof; the same numbers in all roles; mistakes that the proof and the second machine find."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check.queues import owned
from taskfuse.count import count
from taskfuse.errors import LoweringError, SimulationError
from taskfuse.kir import parse_kernel
from taskfuse.schedulers import ProductsConfig
from taskfuse.testing.lists import list_of
from taskfuse.testing.machine.refuter import find_fault

CLAIMS = """\
KERNEL claims(x: float32[T, 32]) -> (y: float32[T, 32])
  DIM T
  GRID (3, 1, 1)  BLOCK (32, 2, 1)
  SHARED s: float32[2, 32] align 16
  MBARRIER full[2], empty[2]
  QUEUE q[T]
  DEFINE s: float32[T, 32] = mul(x[i0, i1], 2.0)
  DEFINE y: float32[T, 32] = add(s[i0, i1], 1.0)

IF threadIdx.x == 0 && threadIdx.y == 0:
  FOR i in 0..2:
    INIT full[i] count 32
    INIT empty[i] count 32
SYNC block
IF threadIdx.y == 0:  # producer
  p = CURSOR(slots 2, slot 0, parity 1)
  FOR w in 0..T of q:
    WAIT empty[p.slot] parity p.parity
    s[p.slot, threadIdx.x] = mul(x[w, threadIdx.x], 2.0)  ~ value s[w, threadIdx.x]
    ARRIVE full[p.slot]
    p.advance(1)
ELSE IF threadIdx.y == 1:  # consumer
  c = CURSOR(slots 2, slot 0, parity 0)
  FOR v in 0..T of q:
    WAIT full[c.slot] parity c.parity
    y[v, threadIdx.x] = add(s[c.slot, threadIdx.x], 1.0)  ~ value y[v, threadIdx.x]
    ARRIVE empty[c.slot]
    c.advance(1)
"""
MISTAKES = {
    "one role takes all numbers": ("FOR v in 0..T of q:", "FOR v in 0..T:"),
    "one role leaves earlier": ("QUEUE q[T]", "QUEUE q[T], r[T]", "FOR v in 0..T of q:", "FOR v in 0..T of r:"),
    "every block takes all numbers": ("0..T of q:", "0..T:"),
    "a slot is read before it is full": ("    WAIT full[c.slot] parity c.parity\n", ""),
    "a slot is filled before it is empty": ("    WAIT empty[p.slot] parity p.parity\n", ""),
    "the number before": ("y[v, threadIdx.x] = add", "y[max(v - 1, 0), threadIdx.x] = add"),
    "blocks meet between two numbers": ("QUEUE", "COUNTER g\n  QUEUE", "    p.advance(1)\n", "    p.advance(1)\n    SYNC grid g, 96\n"),
}


def changed(*words: str) -> str:
    text = CLAIMS
    for old, new in zip(words[::2], words[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    return text


def test_claimed_numbers_are_those_of_a_table_of_owners() -> None:
    kernel = parse_kernel(CLAIMS)
    assert str(parse_kernel(str(kernel))) == str(kernel)
    text = str(owned(kernel))
    assert "KERNEL claims(q: int32[T], x: float32[T, 32])" in text
    assert text.count("IF blockIdx.x == clamp(q[w of T], 0, 2):") == text.count("IF blockIdx.x == clamp(q[v of T], 0, 2):") == 1
    assert "QUEUE" not in text
    plain = parse_kernel(changed("0..T of q:", "0..T:", "  QUEUE q[T]\n", ""))
    assert owned(plain) is plain


def test_a_ring_under_claims_is_proved_for_all_numbers() -> None:
    certificate = parse_kernel(CLAIMS).verify()
    assert certificate.is_proved
    assert "the counters of queues are zero when the launch begins" in certificate.assumptions
    assert parse_kernel(CLAIMS).verify({"T": 1}).is_proved
    assert find_fault(parse_kernel(CLAIMS), ({"T": 7}, {"T": 1})) is None


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_not_proved(name: str) -> None:
    assert not parse_kernel(changed(*MISTAKES[name])).verify().is_proved


@pytest.mark.parametrize("name", ["one role leaves earlier", "every block takes all numbers", "a slot is read before it is full"])
def test_the_second_machine_finds_mistakes(name: str) -> None:
    assert find_fault(parse_kernel(changed(*MISTAKES[name])), ({"T": 7},), orders=4) is not None


def test_each_number_is_claimed_once_by_whoever_comes_first() -> None:
    owners = parse_kernel("""\
KERNEL owners(n: int32[1]) -> (y: int32[T], z: int32[T])
  DIM T
  GRID (3, 1, 1)  BLOCK (2, 1, 1)
  QUEUE q[T]

FOR w in 0..T of q:
  IF threadIdx.x == 0:
    y[w] = copy(index(blockIdx.x))
FOR v in 0..T of q:
  IF threadIdx.x == 1:
    z[v] = copy(index(blockIdx.x))
""")
    seen: set[tuple[int, ...]] = set()
    for seed in range(6):
        y, z = owners.simulate(np.zeros(1, np.int32), seed=seed, extents={"T": 9})
        assert np.array_equal(y, z)  # both loops of a block go through the block's numbers
        seen.add(tuple(y.tolist()))
    assert len(seen) > 1
    with pytest.raises(SimulationError, match="which block claims which number is a choice that is not explored"):
        owners.explore(np.zeros(1, np.int32), extents={"T": 2})


def test_the_text_claims_from_a_counter_that_launches_set_to_zero() -> None:
    kernel = parse_kernel(CLAIMS)
    text = kernel.cuda_source()
    assert "q_counter" in text
    assert text.count("queue_claim(q, q_counter, ") == 2
    assert "k <= T; k += 64) q[k] = -1;" in text


def test_a_block_is_counted_with_its_fair_share() -> None:
    dealt = changed(" of q:", " step 3:", "FOR w in 0", "FOR w in blockIdx.x", "FOR v in 0", "FOR v in blockIdx.x")
    claimed, even = (count(parse_kernel(text), {"T": 99}) for text in (CLAIMS, dealt))
    assert str(claimed) == str(even)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("QUEUE q[T]", "QUEUE q[N]"), "queue 'q' uses 'N'"),
        (("GRID (3, 1, 1)", "GRID (3, 2, 1)"), "queue 'q' is for a grid of blocks along x"),
        (("0..T of q:", "1..T of q:"), "a loop over queue 'q' is over 0..T, one by one"),
        (("v in 0..T of q:", "v in 0..T of r:"), "there is no queue 'r'"),
        (("QUEUE q[T]", "QUEUE s[T]", " of q:", " of s:"), "'s'"),
    ],
)
def test_rules(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(tf.errors.VerifyError, match=message):
        parse_kernel(changed(*words)).check_ir()


def test_lists_whose_tiles_blocks_claim_are_proved() -> None:
    fusion = list_of(((128, 128, 64), (256, 128, 128)))
    assert "as blocks come to them" in tf.schedulers.products(fusion, ProductsConfig(blocks=3, is_dynamic=True)).explain()
    kernel = tf.lower(fusion)
    assert [str(q.size) for q in kernel.queues] == ["2", "1"]
    assert kernel.verify().is_proved
    copy = tf.parse_fusion(str(fusion))
    assert str(copy) == str(fusion)


def test_tiles_that_are_claimed_need_room() -> None:
    fusion = list_of(((2048, 2048, 64), (2048, 2048, 64)))
    with pytest.raises(tf.errors.UnsupportedError, match="2056 of them for the tiles that a block claims"):
        tf.schedulers.products(fusion, ProductsConfig(stages=6, is_dynamic=True))
    tf.schedulers.products(fusion, ProductsConfig(stages=5, is_dynamic=True))


def test_what_no_loop_goes_over_is_refused() -> None:
    with tf.Fusion("rows") as fusion:
        x = tf.define_tensor(["N", 32], name="x")
        y = tf.exp(x)
        fusion.add_output(y)
    y.split(0, 4).rasterize((1,), tf.tiles.dynamic())
    y.axis(2).parallelize(tf.ParallelType.TIDx)
    with pytest.raises(LoweringError, match="it claims items of work where no loop of trips goes over them"):
        tf.lower(fusion)  # the axis is not one of blocks
    y.axis(1).parallelize(tf.ParallelType.BIDx)
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    x = np.random.default_rng(0).standard_normal((11, 32)).astype(np.float32)
    np.testing.assert_allclose(kernel.simulate(x, seed=3)[0], np.exp(x), rtol=1e-6)


@pytest.mark.parametrize("ptype", [tf.ParallelType.BIDy, tf.ParallelType.CIDx])
def test_blocks_claim_along_x_alone(ptype: tf.ParallelType) -> None:
    with tf.Fusion("rows") as fusion:
        y = tf.exp(tf.define_tensor(["N", 2], name="x"))
        fusion.add_output(y)
    y.split(0, 4).rasterize((1,), tf.tiles.dynamic())
    y.axis(1).parallelize(tf.ParallelType.BIDx)
    y.axis(2).parallelize(ptype)
    with pytest.raises(LoweringError, match=f"it claims items of work in a grid of 2 blocks along {ptype.value}"):
        tf.lower(fusion)


def test_a_workspace_by_the_place_of_an_item() -> None:
    """Other blocks read where the item's own block wrote: at the place of the item, not of a block."""
    with tf.Fusion("rows") as fusion:
        y = tf.exp(tf.define_tensor([2, "N"], name="x"))
        z = tf.reshape(y, [-1])
        fusion.add_output(tf.copy(z))
    for tv in (y, fusion.outputs[0]):
        tv.split(0, 3).rasterize((1,), tf.tiles.dynamic())
        tv.axis(1).parallelize(tf.ParallelType.BIDx)
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    x = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
    np.testing.assert_allclose(kernel.simulate(x, seed=3)[0], np.exp(x).reshape(-1), rtol=1e-6)

"""Products of groups in all layouts: empty, full and random groups, hostile tables, promises that debug builds check."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.errors import InputError

BF16 = tf.bfloat16
G, M, K, N = 5, 512, 256, 192
RNG = np.random.default_rng(0)


def tensors(*shapes: tuple[int, ...]) -> list[Any]:
    return [torch.randint(-2, 3, s, device="cuda").to(torch.bfloat16) for s in shapes]


def table(values: object) -> Any:
    return torch.tensor(np.asarray(values), dtype=torch.int32, device="cuda")


def ragged(how: tf.PlaceSearch = tf.PlaceSearch.BISECTION) -> tuple[tf.Fusion, tuple[tuple[int, ...], ...]]:
    with tf.Fusion("ragged") as fusion:
        a, b = tf.define_tensor((M, K), BF16, name="a"), tf.define_tensor((G, K, N), BF16, name="b")
        fusion.add_output(tf.grouped_matmul(a, b, tf.table("offsets", G + 1, M, rising=True).search_by(how)))
    return fusion, ((M, K), (G, K, N))


def terms() -> tuple[tf.Fusion, tuple[tuple[int, ...], ...]]:
    with tf.Fusion("terms") as fusion:
        a, b = tf.define_tensor((M, K), BF16, name="a"), tf.define_tensor((M, N), BF16, name="b")
        fusion.add_output(tf.grouped_matmul(a.T, b, tf.table("offsets", G + 1, M)))
    return fusion, ((M, K), (M, N))


def masked() -> tuple[tf.Fusion, tuple[tuple[int, ...], ...]]:
    with tf.Fusion("masked") as fusion:
        a, b = tf.define_tensor((G, M, K), BF16, name="a"), tf.define_tensor((G, K, N), BF16, name="b")
        fusion.add_output(tf.grouped_matmul_masked(a, b, tf.table("counts", G, M)))
    return fusion, ((G, M, K), (G, K, N))


def tiled() -> tuple[tf.Fusion, tuple[tuple[int, ...], ...]]:
    with tf.Fusion("tiled") as fusion:
        a, b = tf.define_tensor((M, K), BF16, name="a"), tf.define_tensor((G, K, N), BF16, name="b")
        fusion.add_output(tf.grouped_matmul_tiled(a, b, tf.table("groups", M, G - 1, low=-1)))
    return fusion, ((M, K), (G, K, N))


def aligned() -> tuple[tf.Fusion, tuple[tuple[int, ...], ...]]:
    with tf.Fusion("aligned") as fusion:
        a, b = tf.define_tensor((M, K), BF16, name="a"), tf.define_tensor((G, K, N), BF16, name="b")
        fusion.add_output(tf.grouped_matmul_aligned(a, b, tf.table("ends", G + 1, M)))
    return fusion, ((M, K), (G, K, N))


CUTS = ([0, 0, 0, 0, 0, M], [0, M, M, M, M, M], [0, 100, 101, 230, 230, M])
FORMS: dict[str, tuple[Callable[[], tuple[tf.Fusion, tuple[tuple[int, ...], ...]]], tuple[object, ...]]] = {
    "ragged": (ragged, CUTS),
    "terms": (terms, (*CUTS, [9, 600, -4, 2**31 - 1, 77, 5])),
    "masked": (masked, ([0] * G, [M] * G, [129, 1, 0, 300, 500], [-5, 2**31 - 1, 3, -(2**31), 7])),
    "tiled": (tiled, ([-1] * M, np.arange(M) // 128, np.where(np.arange(M) % 128 < 77, 3 - np.arange(M) // 128, -1), RNG.integers(-9, 9, M))),
    "aligned": (aligned, ([0] * 6, [0, 128, 128, 256, 384, M], [0, 100, 130, 131, 260, 400])),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_layouts(form: str) -> None:
    fusion, shapes = FORMS[form][0]()
    run = tf.compile(fusion, backend="cuda", specialize=False)
    assert "WGMMA" in str(run.kernels[-1])
    for values in FORMS[form][1]:
        a, b = tensors(*shapes)
        (found,) = run(a, b, table(values))
        (wanted,) = fusion.evaluate(*(x.float().cpu().numpy().astype(BF16.numpy) for x in (a, b)), np.asarray(values).astype(np.int32))
        assert (found.float().cpu().numpy() == wanted.astype(np.float32)).all()


@pytest.mark.parametrize("how", [tf.PlaceSearch.BISECTION, tf.PlaceSearch.BALLOT])
@pytest.mark.parametrize("groups", [G, 40])
def test_groups_by_their_lengths(groups: int, how: tf.PlaceSearch) -> None:
    with tf.Fusion("lengths") as fusion:
        x, y = tf.define_tensor((M, K), BF16, name="a"), tf.define_tensor((groups, K, N), BF16, name="b")
        fusion.add_output(tf.grouped_matmul(x, y, lengths=tf.table("lengths", groups, M, lengths=True).search_by(how)))
    run = tf.compile(fusion, backend="cuda", specialize=False)
    a, b = tensors((M, K), (groups, K, N))
    kept = [np.diff(np.sort([0, *RNG.integers(0, M + 1, groups - 1), M])) for _ in range(4)]
    for values in (*kept, [0] * groups, RNG.integers(-9, 99, groups), RNG.choice([2**31 - 1, -(2**31), 7], groups)):
        (found,) = run(a, b, table(values))
        (wanted,) = fusion.evaluate(*(x.float().cpu().numpy().astype(BF16.numpy) for x in (a, b)), np.asarray(values).astype(np.int32))
        assert (found.float().cpu().numpy() == wanted.astype(np.float32)).all()
    checked = tf.compile(fusion, backend="cuda", debug=True, specialize=False)
    with pytest.raises(InputError, match="their sum is 0"):
        checked(a, b, table([0] * groups))
    assert (checked(a, b, table(kept[0]))[0] == run(a, b, table(kept[0]))[0]).all()


@pytest.mark.parametrize("how", [tf.PlaceSearch.BISECTION, tf.PlaceSearch.BALLOT])
@pytest.mark.parametrize("values", [[9, 600, -4, 2**31 - 1, 77, 5], [512, 400, 300, 200, 100, 0], [-(2**31)] * 6])
def test_a_table_that_falls(values: list[int], how: tf.PlaceSearch) -> None:
    fusion, shapes = ragged(how)
    run = tf.compile(fusion, backend="cuda", specialize=False)
    a, b = tensors(*shapes)
    run(a, b, table(values))
    torch.cuda.synchronize()
    cuts = table(CUTS[2])
    wanted = torch._grouped_mm(a, b, offs=cuts[1:]).float()
    assert (run(a, b, cuts)[0].float() == wanted).all()
    between = table([0] * (2 * len(cuts) - 1))
    between[::2] = cuts
    assert (run(a, b, between[::2])[0].float() == wanted).all()
    checked = tf.compile(fusion, backend="cuda", debug=True, specialize=False)
    with pytest.raises(InputError, match="table 'offsets' does not rise from 0 to 512"):
        checked(a, b, table(values))
    assert (checked(a, b, cuts)[0] == run(a, b, cuts)[0]).all()

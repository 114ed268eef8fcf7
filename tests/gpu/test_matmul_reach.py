"""Matrix products of any size, and reductions of products, on the GPU: into poisoned outputs, against float64, the same bits each time."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.schedulers import MatmulConfig
from tests.gpu.device import Array, poisoned, to_numpy, to_torch
from tests.schedulers.epilogues import CASES, fusion_of
from tests.schedulers.odd import VARIANTS, Odd
from tests.schedulers.products import operands
from tests.schedulers.several import of_computed, of_several

SIZES = {"one": (1, 1, 1), "small": (7, 17, 33), "primes": (257, 1031, 521), "flat": (3, 4099, 1030), "deep": (130, 129, 8191)}
REPEATS = 3


def run(fusion: tf.Fusion, args: list[Array], shapes: list[tuple[int, ...]]) -> list[Array]:
    """The outputs: poisoned before each of several calls, which agree to the bit."""
    call = tf.compile(fusion, backend="cuda")
    given = [to_torch(a) for a in args]
    found: list[list[Array]] = []
    for _ in range(REPEATS):
        outs = tuple(poisoned(shape, tv.dtype) for shape, tv in zip(shapes, fusion.outputs, strict=True))
        call(*given, out=outs)
        found.append([to_numpy(out) for out in outs])
    for other in found[1:]:
        for x, y in zip(found[0], other, strict=True):
            assert x.tobytes() == y.tobytes()
    return found[0]


def check(odd: Odd, config: MatmulConfig | None, sizes: dict[str, int]) -> None:
    fusion = odd.fusion()
    tf.schedulers.matmul(fusion, config, sizes={name: n for name, n in sizes.items() if name in fusion.dims})
    args = operands(fusion, sizes)
    a, b = (np.asarray(x, np.float64) for x in args)
    a = a if odd.layout[0] == "k" else np.swapaxes(a, -1, -2)
    b = np.swapaxes(b, -1, -2) if odd.layout[1] == "k" else b
    wanted, size = a @ b, np.abs(a) @ np.abs(b)
    (out,) = run(fusion, args, [wanted.shape])
    error = np.abs(out - wanted)
    assert (error <= 2.0**-19 * size).all(), f"largest error {np.max(error)} of a norm of {np.linalg.norm(wanted)}"


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("size", SIZES)
def test_any_extents(size: str) -> None:
    check(Odd(), None, dict(zip("MNK", SIZES[size], strict=True)))


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("config", [None, MatmulConfig(128, 128, stages=3), MatmulConfig(192, 128, warpgroups=3, stages=3)], ids=str)
@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name: str, config: MatmulConfig | None) -> None:
    odd = VARIANTS[name]
    sizes = {x: n * unit for x, n, unit in zip("MNK", (130, 133, 129), odd.unit, strict=True)}
    check(odd, config, {**sizes, "B": 2, "C": 3})


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("chosen", [True, False], ids=["chosen", "given"])
@pytest.mark.parametrize("name", CASES)
def test_reductions(name: str, chosen: bool) -> None:
    epilogue, config, batch = CASES[name]
    sizes = {"B": 3, "M": 1030, "N": 776, "K": 520}
    fusion, plain = fusion_of(epilogue, batch), fusion_of(epilogue, batch)
    tf.schedulers.matmul(fusion, None if chosen else config, sizes={name: n for name, n in sizes.items() if name in fusion.dims})
    args = operands(plain, sizes)
    expected = plain.evaluate(*args)
    for tv, out, wanted in zip(plain.outputs, run(fusion, args, [w.shape for w in expected]), expected, strict=True):
        wide = wanted.astype(np.float64)
        error = np.abs(out.astype(np.float64) - wide)
        terms = sizes["M"] * (sizes["N"] if tv.ndim == 0 else 3)
        assert (error <= 2.0 ** -(tv.dtype.precision - 1) * np.abs(wide) + 2.0**-18 * terms).all(), f"{tv}: {np.max(error)} of {np.max(np.abs(wide))}"


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("form", ["gated", "added", "taps", "computed"])
def test_several_products_and_computed_factors(form: str) -> None:
    """The scheduler's choice; rows and columns that end inside of a tile."""
    fusion = of_computed(1030, 776, 512) if form == "computed" else of_several(form, 1030, 776, 512)
    rng = np.random.default_rng(0)
    args = [(rng.standard_normal([int(str(e)) for e in tv.shape]) * 0.25).astype(tv.dtype.numpy) for tv in fusion.inputs]
    wanted = fusion.evaluate(*args)
    tf.schedulers.matmul(fusion)
    for out, exact in zip(run(fusion, args, [x.shape for x in wanted]), wanted, strict=True):
        assert np.allclose(out.astype(np.float64), exact.astype(np.float64), rtol=2**-6, atol=0.05)

"""The PTX of every kernel of the tests does what kernel IR says, thread by thread."""

from pathlib import Path

import pytest

import taskfuse as tf
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.nodes import AsyncCopy
from taskfuse.kir.variant import ArgumentLayout, Variant
from taskfuse.kir.walk import walk
from taskfuse.testing.options import Mix
from tests.products import ALL_PRODUCTS, AnyProduct
from tests.random_cases import random_case_of
from tests.testing.ptx.compiled import TESTS, compared, distinct

# Of the right twins of the museum, each second one: test_sentryward.py has the others judged.
FILES = [
    *sorted((TESTS / "kernels").glob("*.kir")),
    *sorted((TESTS / "goldens" / "examples").glob("*.kir")),
    *distinct(sorted((TESTS / "check" / "museum").glob("*.fixed.kir")))[1::2],
]
DATA_DECIDES = {"gemm_dynamic", "update_before_part.fixed"}
"""What these reach, data decides, of which the comparison knows nothing."""
WRITTEN = [path for path in FILES if path.stem not in DATA_DECIDES]
RANDOM = {Mix.MIXED: 3, Mix.WARPS: 2, Mix.BLOCKS: 2, Mix.PERSISTENT: 2, Mix.STREAMS: 2, Mix.PREFETCH: 2, Mix.POINTWISE: 1}
"""Seeds of each kind of random kernels; `make compiles` looks at as many as wanted."""


@pytest.mark.parametrize("path", WRITTEN, ids=lambda p: p.stem)
def test_kernels(path: Path) -> None:
    report = compared(tf.parse_kernel(path.read_text(encoding="utf-8")))
    assert report.difference is None
    assert report.launches > 0
    assert [u for u in report.unseen if is_event(u)] == []


def test_claims_are_not_compared() -> None:
    kernel = tf.parse_kernel(next(path for path in FILES if path.stem == "gemm_dynamic").read_text(encoding="utf-8"))
    assert compared(kernel).difference == "what threads do to claim numbers of a queue is not compared"


def is_event(site: str) -> bool:
    """Whether an instruction synchronizes, and not only loads or stores."""
    return site.split()[-1].split(".")[0] not in ("ld", "st")


@pytest.mark.parametrize("product", ALL_PRODUCTS[::2], ids=lambda p: p.name)
def test_products(product: AnyProduct) -> None:
    report = compared(product.kernel())
    assert report.difference is None
    assert [u for u in report.unseen if is_event(u)] == []


@pytest.mark.parametrize(
    ("mix", "seed"), [(mix, seed) for mix, seeds in RANDOM.items() for seed in range(seeds)], ids=lambda p: p.value if isinstance(p, Mix) else str(p)
)
def test_random_kernels(mix: Mix, seed: int) -> None:
    kernel = random_case_of(seed, mix).kernel
    if kernel is not None:  # a case that is refused
        assert compared(kernel).difference is None


@pytest.mark.parametrize(("form", "wide", "first"), [(ArgumentLayout.DENSE, True, 0), (ArgumentLayout.ROWS, False, 9), (ArgumentLayout.STRIDED, True, 18)])
def test_other_variants(form: ArgumentLayout, wide: bool, first: int) -> None:
    kernels = [tf.parse_kernel(path.read_text(encoding="utf-8")) for path in WRITTEN[first::27]]
    for kernel in kernels:
        if any(isinstance(s, AsyncCopy) for s in walk(kernel)) and form is not ArgumentLayout.DENSE:
            continue  # its copies become other instructions
        variant = Variant(tuple(form for p in kernel.params if isinstance(p, TensorParam)), wide)
        assert compared(kernel, variant).difference is None, kernel.name

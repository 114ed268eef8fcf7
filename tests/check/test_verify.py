"""Every kernel of the examples and of tests/kernels is proved, and so are the kernels of random cases."""

import gc
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from taskfuse.check import verify
from taskfuse.check.counterexample import counterexample
from taskfuse.check.refuted import TooLarge
from taskfuse.collector import PAUSE
from taskfuse.ir.scalar.expr import INTERNED, Sym
from taskfuse.kir import parse_kernel
from taskfuse.testing.options import Mix
from tests.proofs import proved
from tests.random_cases import random_case_of

TESTS = Path(__file__).parent.parent
COVERING = (104, 110, 111, 112, 113, 118, 119, 120, 121, 124, 126, 134, 135)
"""Seeds with all statements, functions, rules, memories and mechanisms of 104 to 137."""
KERNELS = [*sorted((TESTS / "kernels").glob("*.kir")), *sorted((TESTS / "goldens" / "examples").glob("*.kir"))]


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
def test_kernels_are_proved(path: Path) -> None:
    verify(parse_kernel(path.read_text(encoding="utf-8"))).require()


def test_no_text_has_the_names_of_symbols_that_a_proof_makes() -> None:
    """An extent or a loop of such a name would be that symbol: what is known of one would be said of the other."""
    own = re.compile(r"'.*|[iv][0-9]+|tile\.[0-9]+|(thread|block|cluster)Idx\.[xyz]|.*\.(slot|phase|parity)|queue[0-9]+")
    for path in (*KERNELS[::4], *sorted((Path(__file__).parent / "museum").glob("[n-u]*.fixed.kir"))[::6]):
        kernel = parse_kernel(path.read_text(encoding="utf-8"))
        before = _symbols()
        assert verify(kernel).is_proved
        assert [name for name in _symbols() - before if own.fullmatch(name) is None] == []


def _symbols() -> set[str]:
    return {e.name for e in [*INTERNED.values()] if isinstance(e, Sym)}


@pytest.mark.parametrize("path", [*KERNELS[::8], TESTS / "kernels" / "gemm.kir"], ids=lambda p: p.stem)
def test_a_proof_leaves_no_cycles(path: Path) -> None:
    """Reference counts free what it was made of, and the collector finds nothing to do."""
    kernel = parse_kernel(path.read_text(encoding="utf-8"))
    with PAUSE:
        gc.collect()
        verify(kernel).require()
        assert gc.collect() == 0


@pytest.mark.parametrize(("mix", "seeds"), [(Mix.MIXED, COVERING), (Mix.WARPS, range(12)), (Mix.PERSISTENT, range(1023, 1035))])
def test_random_kernels_are_proved(mix: Mix, seeds: Sequence[int]) -> None:
    """Order for all extents; values for all, or for those of the case."""
    kernels = [proved(case.kernel, case.sizes) for seed in seeds if (case := random_case_of(seed, mix)).kernel is not None]
    assert sum(not verify(kernel).is_proved for kernel in kernels) <= len(kernels) // 3


@pytest.mark.parametrize(("name", "said"), [("share", (True, False)), ("meet", (False, False)), ("gemm", (False, True))])
def test_assumptions_of_the_machine_are_those_that_the_kernel_uses(name: str, said: tuple[bool, bool]) -> None:
    """Arrivals at other blocks at the scope of a block, and wgmmas; an arrival at the scope of the cluster needs no assumption."""
    certificate = verify(parse_kernel((TESTS / "kernels" / f"{name}.kir").read_text(encoding="utf-8")))
    found = [any(text.startswith(begin) for text in certificate.assumptions) for begin in ("an arrival at the mbarrier of another block", "a wgmma reads")]
    assert tuple(found) == said


CLUSTER = """\
KERNEL places(x: float32[2, 32]) -> (y: float32[6, 32])
  GRID (6, 1, 1)  BLOCK (32, 1, 1)  CLUSTER (2, 1, 1)

y[blockIdx.x, threadIdx.x] = copy(x[clusterIdx.x, threadIdx.x])
"""


def test_places_in_clusters() -> None:
    kernel = parse_kernel(CLUSTER)
    kernel.verify().require()
    assert counterexample(kernel, {}) is None
    same = parse_kernel(CLUSTER.replace("y[blockIdx.x", "y[clusterIdx.x"))
    assert same.verify().failures[0].reason == "different threads may touch one element in one statement"
    outside = counterexample(parse_kernel(CLUSTER.replace("CLUSTER (2", "CLUSTER (3")), {})
    assert outside is not None
    assert outside.reason == "index 2 of axis 0 is outside 0..2"


def test_proved_kernels_hold_in_single_launches() -> None:
    launches = 0
    for seed in range(9):
        case = random_case_of(seed)
        if case.kernel is None or not verify(case.kernel, case.sizes).is_proved:
            continue
        try:
            assert counterexample(case.kernel, case.sizes) is None
        except TooLarge:
            continue
        launches += 1
    assert launches > 4


def test_verification_leaves_the_kernel_alone() -> None:
    kernel = parse_kernel((TESTS / "kernels" / "ring.kir").read_text(encoding="utf-8"))
    text = str(kernel)
    assert str(verify(kernel)) == str(verify(kernel))
    assert str(kernel) == text

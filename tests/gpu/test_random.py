"""Random kernels; ``python -m tests.gpu.random_kernels --cases N`` runs more."""

import pytest

pytest.importorskip("torch", reason="needs torch")

from tests.gpu.random_kernels import Verdict, check_seed

SEEDS = 800
CHUNK = 20


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_bulk(first: int) -> None:
    verdicts: list[Verdict] = [check_seed(seed) for seed in range(first, first + CHUNK)]
    failures = [v.failure for v in verdicts if v.failure is not None]
    if failures:
        pytest.fail(f"{len(failures)} of {CHUNK} seeds fail\n" + "\n".join(failures[:2]), pytrace=False)
    assert sum(v.checked for v in verdicts) >= CHUNK // 2

"""Every mistake in a definition, in kernels of all calls: what is proved all the same computes what was written."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest

from taskfuse.check.drawn_launches import drawn_extents
from taskfuse.check.rewrites.instances import Instance, compared
from taskfuse.check.rewrites.verify import rewritings
from taskfuse.errors import VerifyError
from taskfuse.ir.scalar import evaluate
from taskfuse.kir import Kernel
from taskfuse.testing.case import seeded_case
from taskfuse.testing.definition_operators import DEFINITION_OPERATORS
from taskfuse.testing.options import Mix
from tests.check.rewrites.calls import PROVED
from tests.check.rewrites.rewritten import Build, is_proved, rewritten

LAUNCHES = 4
MOST = 200_000
SEEDS = range(16)


def mutants(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """The kernels with one mistake that are kernels still."""
    for operator in DEFINITION_OPERATORS:
        for mutant in operator.apply(kernel):
            try:
                mutant.check_ir()
            except VerifyError:
                continue
            yield operator.name, mutant


def difference(mutant: Kernel) -> str:
    """What an output is instead of what was written, at small extents; empty if nothing differs."""
    for extents in islice(drawn_extents(mutant), LAUNCHES):
        points = sum(float(np.prod([float(np.asarray(evaluate(n, extents))) for n in d.space])) for d in (*mutant.definitions, *mutant.written))
        found = compared(mutant, [p.name for p in mutant.outputs], extents) if points < MOST else None
        if isinstance(found, Instance):
            return found.reason
    return ""


def check(kernel: Kernel, count: int) -> None:
    """Draw mutants of a kernel: none is proved and differs."""
    every = list(mutants(kernel))
    order: list[int] = np.random.default_rng(0).permutation(len(every)).tolist()
    for k in order[:count]:
        name, mutant = every[k]
        assert not (is_proved(rewritings(mutant)) and difference(mutant)), f"{name}: {mutant.text(witness=True)}"


@pytest.mark.parametrize("build", PROVED)
def test_mistakes_in_rewritten_kernels(build: Build) -> None:
    kernel = rewritten(build)
    check(kernel, 24)


@pytest.mark.parametrize("mix", [Mix.REWRITES, Mix.MIXED, Mix.FUNCTIONS])
def test_mistakes_in_random_kernels(mix: Mix) -> None:
    kernels = [case.kernel for case in (seeded_case(seed, mix) for seed in SEEDS) if case.kernel is not None and case.kernel.written]
    assert len(kernels) >= 4
    for kernel in kernels[:4]:
        check(kernel, 6)

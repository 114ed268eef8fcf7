"""The cost model of rows: how many threads and blocks share one."""

import pytest

from taskfuse.schedulers import Keep
from taskfuse.schedulers.row_cost import RowProblem, candidates, estimate, rank


def test_few_long_rows_are_shared_and_many_are_not() -> None:
    assert rank(RowProblem(2, 1 << 24))[0].config.blocks > 16
    assert rank(RowProblem(1 << 16, 4096))[0].config.blocks == 1
    assert all(c.blocks == 1 for c in candidates(RowProblem(2, 1 << 24, may_share=False)))


def test_short_rows_share_a_block() -> None:
    chosen = rank(RowProblem(100000, 64, phases=3, held=((Keep.REGISTERS, 2),)))[0].config
    assert (chosen.threads, chosen.keep) == (8, Keep.REGISTERS)
    assert chosen.rows * chosen.threads >= 128


def test_long_rows_do_not_fit_registers() -> None:
    held = ((Keep.REGISTERS, 4), (Keep.SHARED, 2))
    assert rank(RowProblem(2048, 80_000, phases=3, held=held))[0].config.keep is Keep.SHARED
    assert rank(RowProblem(2048, 800_000, phases=3, held=held))[0].config.keep is not Keep.REGISTERS
    assert rank(RowProblem(2048, 4096, phases=3, held=held, is_constant=False))[0].config.keep is Keep.NOTHING


@pytest.mark.parametrize("problem", [RowProblem(1, 1), RowProblem(1, 3, width=1), RowProblem(5, 1, is_inner=False), RowProblem(7, 1013, 1, phases=3)])
def test_every_problem_has_a_candidate(problem: RowProblem) -> None:
    found = rank(problem)
    assert found == sorted(found, key=lambda e: e.us)
    assert all(e.residents >= 1 and e.us > 0 and estimate(problem, e.config) == e for e in found)
    assert found

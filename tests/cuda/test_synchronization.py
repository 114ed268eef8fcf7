"""Statements that wait, in CUDA C++."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, get_args

import pytest

import taskfuse as tf
from examples import pipeline
from taskfuse.cuda import nvrtc
from taskfuse.cuda.source import emit
from taskfuse.cuda.statements import StatementPrinter
from taskfuse.cuda.synchronization import CALLS, Synchronization
from taskfuse.errors import VerifyError
from taskfuse.kir.nodes import Stmt
from tests.cuda.adding import ADD, checked


def test_calls_name_fields() -> None:
    """A statement that is one call of a helper says which of its fields are the arguments."""
    for kind, call in CALLS.items():
        assert set(call.fields) <= {field.name for field in fields(kind)}


def test_every_statement_has_its_row() -> None:
    """One of three prints a statement: the case of its class in a dispatch, or the table of calls. None has two rows, and none is missing."""
    cases = [cls for dispatch in (StatementPrinter.print, Synchronization.print) for cls in patterns(dispatch)]
    assert {*cases, *(kind.__name__ for kind in CALLS)} == {kind.__name__ for kind in kinds(Stmt)}
    assert not [kind for kind in CALLS if kind.__name__ in cases]


def kinds(union: Any) -> Iterator[type]:
    for part in get_args(union):
        yield from kinds(part) if get_args(part) else (part,)


def patterns(dispatch: Callable[..., Any]) -> set[str]:
    """The classes that the outer match of a function names."""
    (found,) = [n for n in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(dispatch)))) if isinstance(n, ast.Match)]
    return {ast.unparse(case.pattern.cls) for case in found.cases if isinstance(case.pattern, ast.MatchClass)}


def test_a_warp_meets_with_all_its_lanes() -> None:
    """One meaning everywhere: those that execute it are whole warps, or the verifier and the proof refuse it."""
    text = ADD.replace("FOR i", "IF threadIdx.x < {}:\n  SYNC warp{}\nFOR i")
    assert "__syncwarp();" in emit(checked(text.format(32, ""))).text
    with pytest.raises(VerifyError, match="a warp barrier of 16 threads"):
        emit(checked(text.format(16, " 16")))
    assert checked(text.format(32, "")).verify().is_proved
    assert checked(text.format(16, "")).verify().failures[0].reason == "16 of 32 lanes of a warp reach it"


def test_debug_builds_name_their_waits() -> None:
    text = """\
KERNEL handoff(x: float32[32]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  MBARRIER b[2]

IF threadIdx.x == 0:
  INIT b[1] count 32
SYNC block
IF threadIdx.x >= 0:  # receiver
  ARRIVE b[1]
  WAIT b[1] parity 0
  y[threadIdx.x] = copy(x[threadIdx.x])
"""
    source = emit(checked(text), debug=True)
    assert [(w.path, w.barrier) for w in source.waits] == [(("receiver",), "b")]
    assert "mbarrier_wait_bounded(&b[1], 0, report, 0, 1);" in source.text
    assert emit(checked(text)).waits == ()


def test_chaos_delays_around_synchronization() -> None:
    lowered = tf.lower(pipeline.build())
    plain, chaos = emit(lowered), emit(lowered, debug=True, chaos=7)
    assert "delay_at_random" not in plain.text
    assert chaos.text.count("delay_at_random(7u, ") > 20
    places = re.findall(r"delay_at_random\(7u, (\d+)\);", chaos.text)
    assert len(places) == len(set(places))
    nvrtc.compile_cubin(chaos.text, chaos.name, nvrtc.CompileOptions(arch="sm_90a"))

"""The text of the code that a thread executes: integers, addresses, accesses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfuse.ir.scalar import Expr, const, evaluate, parse_expr
from taskfuse.ir.types import MemoryType
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.kir.declarations import Buffer
from taskfuse.kir.operands import Access
from taskfuse.testing.machine.writer import PythonWriter, cells, entry, python_text
from tests.ir.scalar.generated import EXPRESSIONS, NAMES, NONZERO


@settings(max_examples=60, deadline=None)
@given(EXPRESSIONS, st.lists(NONZERO, min_size=len(NAMES), max_size=len(NAMES)))
def test_expressions_have_the_values_of_the_scalar_ir(e: Expr, values: list[int]) -> None:
    env: dict[str, int] = dict(zip(NAMES, values, strict=True))
    try:
        expected = evaluate(e, env)
    except (ArithmeticError, LookupError, ValueError):
        return
    assert int(eval(python_text(e, lambda name: f"env[{name!r}]"), {"env": env, "entry": entry})) == int(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("-7 // N", -4), ("-7 % N", 1), ("xor(5, N)", 7), ("min(3, N)", 2), ("N < 3 && !(N == 2)", 0), ("select(N > 1, 5, 6)", 5)],
)
def test_quotients_are_rounded_down(text: str, expected: int) -> None:
    assert int(eval(python_text(parse_expr(text), lambda name: "2"), {"entry": entry})) == expected


def test_an_entry_is_in_its_table() -> None:
    assert entry((3, 1, 4), 2) == 4
    for index in (-1, 3):
        with pytest.raises(LookupError, match=f"entry {index} of a table of 3"):
            entry((3, 1, 4), index)


# -- cells --------------------------------------------------------------------------------------------------------------------------------


def kernel(body: str, shared: str = "s: float32[64] align 16 @ 0", output: str = "float32") -> Kernel:
    return parse_kernel(f"""\
KERNEL k(x: float32[64]) -> (y: {output}[64])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL r: float32[4]
  SHARED {shared}
  MBARRIER b[2]

{body}
""")


@pytest.mark.parametrize(
    ("shared", "size"),
    [
        ("s: float32[64] align 16 @ 0", 4),
        ("s: int8[64] align 16 @ 0", 1),
        ("s: float64[64] align 16 @ 0", 8),
        ("s: float64[64] align 16 @ 20", 4),  # it begins between two cells of 8
    ],
)
def test_no_element_lies_across_cells(shared: str, size: int) -> None:
    assert cells(kernel("y[0] = copy(s[0])", shared), MemoryType.Shared) == size


def test_outputs_are_cells_of_their_elements() -> None:
    assert cells(kernel("y[0] = copy(0.0)", output="bfloat16"), MemoryType.Global) == 2
    assert cells(kernel("s[0] = copy(0.0)"), MemoryType.Global) == 16  # nobody writes any


# -- accesses -----------------------------------------------------------------------------------------------------------------------------


class Calls:
    """What the machine is told."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.memory: Calls | None = None

    def __getattr__(self, name: str) -> Any:
        def told(*args: Any) -> None:
            self.said.append((name, *args))

        return told


def written(k: Kernel) -> PythonWriter:
    made = PythonWriter(k)
    made.storage = {p.name: p for p in (*k.inputs, *k.outputs)} | {b.name: b for b in k.buffers}
    made.slots = {"b": (3, 2)}
    made.depth = 0
    made.site = 9
    return made


def executed(made: PythonWriter, **values: int) -> list[tuple[Any, ...]]:
    """The calls of the written lines; all shapes are 64, all tensors begin at 1000 times their number."""
    calls = Calls()
    calls.memory = Calls()
    calls.memory.said = calls.said
    names: dict[str, Any] = {made.name(symbol): value for symbol, value in values.items()}
    for number, name in enumerate(made.storage):
        shape = made.storage[name].shape
        names |= {f"B{number}": 1000 * number} | {f"E{number}_{axis}": int(str(e)) for axis, e in enumerate(shape)}
    exec("\n".join(made.text), {"m": calls, "t": 5, "sb": 1 << 20, "mb": 10, **names, **{w: getattr(calls, w) for w in ("read", "write")}})
    return calls.said


def test_an_index_outside_is_told_and_an_element_touched() -> None:
    made = written(kernel("y[0] = copy(0.0)"))
    made.touch(Access("y", (parse_expr("i"),)), "write")
    assert executed(made, i=3) == [("write", 5, (1000 + 12) // 4, 9)]
    assert executed(made, i=64)[0] == ("outside", 5, 9, "y", 0, 64, 64)
    assert executed(made, i=-1)[0] == ("outside", 5, 9, "y", 0, -1, 64)


def test_shared_memory_is_the_blocks() -> None:
    made = written(kernel("y[0] = copy(0.0)"))
    made.touch(Access("s", (const(1),)), "read")
    number = [*made.storage].index("s")
    assert executed(made) == [("read", 5, ((1 << 20) + 1000 * number + 4) // 4, 9)]


def test_vectors_end_inside_and_are_aligned() -> None:
    made = written(kernel("y[0] = copy(0.0)"))
    made.touch(Access("y", (parse_expr("i"),)), "write", 4, 16)
    assert [call[0] for call in executed(made, i=2)] == ["write_all"]  # byte 1008
    assert next(call[0] for call in executed(made, i=61)) == "outside"
    assert ("misaligned", 5, 9, 1004, 16) in executed(made, i=1)
    (call,) = executed(made, i=2)
    assert call[2] == range(252, 256)


def test_inputs_are_only_looked_at_for_their_bounds() -> None:
    made = written(kernel("y[0] = copy(0.0)"))
    made.touch(Access("x", (parse_expr("i"),)), "read")
    assert executed(made, i=63) == []
    assert executed(made, i=64)[0][0] == "outside"


def test_registers_are_told_where_a_wgmma_may_hold_them() -> None:
    for registers in (False, True):
        made = written(kernel("y[0] = copy(0.0)"))
        assert isinstance(made.storage["r"], Buffer)
        made.registers = registers
        made.touch(Access("r", (const(1),)), "read", 2)
        text = "\n".join(made.text)
        assert text.count("m.engines.register(") == 2 * registers


def test_the_slot_of_an_mbarrier() -> None:
    from taskfuse.kir.operands import BarrierSlot

    made = written(kernel("y[0] = copy(0.0)"))
    found = made.slot(BarrierSlot("b", parse_expr("i")))
    assert found.startswith("mb + 3 + ")
    assert executed(made, i=1) == []
    assert executed(made, i=2) == [("outside", 5, 9, "b", 0, 2, 2)]


def test_lines_know_their_statement() -> None:
    made = written(kernel("y[0] = copy(0.0)"))
    with made.block("if True:"):
        made.add("x = 1")
    assert made.text == ["if True:", " pass", " x = 1"]
    assert made.lines == [9, 9, 9]
    assert made.held(const(4)) == "4"
    assert made.held(parse_expr("i + 1")) == "i1"
    assert made.tuple_of(["a"]) == "(a, )"

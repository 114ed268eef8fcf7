"""One launch: the numbers that the host knows, and where everything lies."""

from collections.abc import Mapping

import pytest

from taskfuse.ir.scalar import parse_expr
from taskfuse.kir import parse_kernel
from taskfuse.testing.machine.fault import FaultFound, NoLaunch
from taskfuse.testing.machine.launch import GLOBAL, MOST_THREADS, MachineLaunch

TEXT = """\
KERNEL k(x: float32[N, 8], c: int32) -> (y: bfloat16[N])
  DIM N min 1 max 64 multiple_of 2
  TENSORMAP m = x box (1, 8) swizzle 0
  GRID (ceildiv(N, 4), 2, 1)  BLOCK (32, 1, 1)
  LOCAL r: float32[4]
  SHARED s: float32[3] align 16
  SHARED t: int8[5] align 128
  GLOBAL w: float64[N]
  MBARRIER a[2], b[3]

y[0] = copy(0.0)
"""


def launch(extents: Mapping[str, int] | None = None, *changes: tuple[str, str]) -> MachineLaunch:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return MachineLaunch(parse_kernel(text), extents if extents is not None else {"N": 6})


def test_numbers() -> None:
    found = launch()
    assert found.values == {"N": 6}
    assert (found.grid, found.block, found.cluster) == ((2, 2, 1), (32, 1, 1), (1, 1, 1))
    assert (found.threads, found.blocks) == (32, 4)
    assert found.number(parse_expr("N*8 + ceildiv(N, 4) % 2")) == 48


def test_places() -> None:
    found = launch()
    x, y, w = (found.places[name] for name in "xyw")
    assert x.base == GLOBAL
    assert y.base >= x.base + x.size
    assert w.base >= y.base + y.size
    assert (x.size, y.size, w.size) == (192, 12, 48)
    assert (x.is_input, y.is_input, w.is_input) == (True, False, False)
    assert (found.places["s"].base, found.places["t"].base) == (0, 128)
    assert found.places["r"].shape == (4,)
    parameter, tensor = found.maps["m"]
    assert parameter.box == (1, 8)
    assert tensor is x
    assert found.slots == {"a": (0, 2), "b": (2, 3)}
    assert found.slot_count == 5


def test_an_output_in_the_array_of_an_input_lies_there() -> None:
    found = launch(None, ("(y: bfloat16[N])", "(y: bfloat16[N], z: float32[N, 8] into x)"))
    assert found.places["z"].base == found.places["x"].base
    assert not found.places["x"].is_input  # somebody writes it


@pytest.mark.parametrize("extents", [{}, {"N": 0}, {"N": 66}, {"N": 7}])
def test_extents_that_the_kernel_does_not_have(extents: dict[str, int]) -> None:
    with pytest.raises(NoLaunch, match="N is not given, or not allowed"):
        launch(extents)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("BLOCK (32, 1, 1)", "BLOCK (2048, 1, 1)"), "no such launch"),
        (("BLOCK (32, 1, 1)", "BLOCK (1, 1, 128)"), "no such launch"),  # 64 along z
        (("BLOCK (32, 1, 1)", "BLOCK (N - 6, 1, 1)"), "no such launch"),
        (("GRID (ceildiv(N, 4), 2, 1)", "GRID (N - 7, 2, 1)"), "no such launch"),
        (("GRID (ceildiv(N, 4), 2, 1)", f"GRID ({MOST_THREADS}, 1, 1)"), "the grid is not whole clusters, or large"),
        (("BLOCK (32, 1, 1)", "BLOCK (32, 1, 1)  CLUSTER (1, 4, 1)"), "the grid is not whole clusters, or large"),
        (("s: float32[3]", "s: float32[65536]"), "more Shared memory than there is"),
        (("ceildiv(N, 4)", "8 // (N - 6)"), "by zero"),
    ],
)
def test_what_is_no_launch(change: tuple[str, str], reason: str) -> None:
    with pytest.raises(NoLaunch, match=reason):
        launch(None, change)


@pytest.mark.parametrize("line", ["SHARED u: float32[N - 8]", "GLOBAL u: float64[2, N - 8]", "QUEUE u[N - 8]", "SEMAPHORE u[N - 8] count 1"])
def test_an_array_of_negative_extent_is_a_fault(line: str) -> None:
    after = "  MBARRIER a[2], b[3]\n"
    with pytest.raises(FaultFound, match="u has the extent -2"):
        launch(
            None, (after, f"{after}  {line}\n") if "count" in line or "QUEUE" in line else (after, f"  {line}\n{after}"), ("(ceildiv(N, 4), 2, 1)", "(1, 1, 1)")
        )


def test_tables_keep_their_promise() -> None:
    text = """\
KERNEL k(t: int32[4] rising 2..11, u: int32[4]) -> (y: float32[4])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)

FOR i in 0..4:
  IF clamp(t[i of 4], 2, 11) + clamp(u[i of 4], 0, 9) < 20:
    y[i] = copy(0.0)
"""
    values = MachineLaunch(parse_kernel(text), {}).values
    assert (values["t"], values["u"]) == ((2, 3, 6, 11), (-1, 2, 5, 8))
    other = MachineLaunch(parse_kernel(text), {}, 1).values
    assert other["t"] == values["t"]
    assert other["u"] != values["u"]

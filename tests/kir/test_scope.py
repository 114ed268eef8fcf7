"""What names mean at a place of a kernel."""

import pytest

from taskfuse.dtypes import bfloat16, float32
from taskfuse.ir.scalar import lt, prove, sym
from taskfuse.ir.types import MemoryType
from taskfuse.kir import parse_kernel
from taskfuse.kir.scope import Declarations, Scope, kernel_facts
from tests.kir.refused import kernel

DECLARED = Declarations.of(kernel("p = CURSOR(slots 2, slot 0, parity 0)\np = CURSOR(slots 2, slot 1, parity 0)"))


def test_storage_is_what_an_access_may_name() -> None:
    assert [DECLARED.memory(n) for n in ("x", "acc", "s", "w", "alpha", "full", "map_x", "gone")] == [
        MemoryType.Global,
        MemoryType.Local,
        MemoryType.Shared,
        MemoryType.Global,
        *[None] * 4,
    ]
    assert (DECLARED.dtype("x"), DECLARED.dtype("acc"), DECLARED.dtype("alpha")) == (bfloat16, float32, None)
    assert DECLARED.shape("x") == (sym("N"), sym("S"))


def test_every_kind_of_declaration_is_declared() -> None:
    for name in ("x", "alpha", "map_x", "full", "done", "N", "s"):
        assert DECLARED.is_declared(name), name
    for name in ("p", "p.slot", "threadIdx.x", "i"):
        assert not DECLARED.is_declared(name), name
    assert DECLARED.cursors == {"p": 2}


@pytest.mark.parametrize(
    ("name", "is_name"),
    [
        ("a", True),
        ("a.b", True),
        ("p", True),
        ("q.slot", True),
        ("p.slot", False),
        ("threadIdx.w", False),
        ("blockIdx", False),
        ("IF", False),
        ("2d", False),
        ("tile.0", False),
        ("tile", True),
        ("tile.of", True),
    ],
)
def test_names_are_read_back_and_mean_nothing_by_themselves(name: str, is_name: bool) -> None:
    assert DECLARED.is_name(name) is is_name


def test_a_scope_grows_inward_and_behind_cursors() -> None:
    outer = Scope.outermost(DECLARED)
    assert {"N", "threadIdx.x", "clusterIdx.z"} <= outer.symbols
    assert outer.symbols.isdisjoint({"alpha", "i", "p.slot"})
    loop = outer.with_loop("i", unroll=True).with_loop("j", unroll=False)
    assert {"i", "j"} <= loop.symbols
    assert loop.constants == {"i"}
    ring = loop.with_cursor("p")
    assert ring.cursors == {"p"}
    assert {"p.slot", "p.parity", "p.phase"} <= ring.symbols
    assert "i" not in outer.symbols


def test_indices_are_below_the_launch_shape() -> None:
    facts = kernel_facts(parse_kernel("KERNEL k() -> ()\n  DIM N min 1\n  GRID (2*N, 1, 1)  BLOCK (32, 4, 1)  CLUSTER (2, 1, 1)\n"))
    assert prove(lt(sym("blockIdx.x"), 2 * sym("N")), facts)
    assert prove(lt(sym("threadIdx.y"), 4), facts)
    assert prove(lt(sym("clusterIdx.x"), 2), facts)
    assert not prove(lt(sym("blockIdx.x"), 2 * sym("N") - 1), facts)

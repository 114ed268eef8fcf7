"""What statements are compiled against."""

from taskfuse.dtypes import float32, int32
from taskfuse.ir.scalar import const, sym
from taskfuse.ir.values import NATIVE
from taskfuse.kir import parse_kernel
from taskfuse.kir.operands import Access
from taskfuse.sim.names import Names
from tests.sim.kernels import kernel, load


def test_numbers_types_and_fixed_symbols() -> None:
    names = Names(parse_kernel(load("ring")), NATIVE)
    assert names.numbers == {"x": 0, "y": 1, "s": 2}
    assert set(names.dtypes.values()) == {float32}
    assert names.fixed == {"N"}
    assert Names(kernel("y[threadIdx.x] = copy(a)", inputs="a: int32"), NATIVE).scalars == {"a": int32}


def test_an_expression_is_compiled_once() -> None:
    names = Names(parse_kernel(load("ring")), NATIVE)
    assert names.expr(sym("N") + 1) is names.expr(sym("N") + 1)
    site = names.site(Access("s", (sym("N"), const(0))), 4)
    assert (site.buffer, site.width) == (2, 4)


def test_others_see_what_is_not_private() -> None:
    names = Names(kernel("y[threadIdx.x] = copy(r)\n", "LOCAL r: float32[]", "SHARED s: float32[4] align 16 @ 0"), NATIVE)
    seen = {buffer: names.is_point(Access(buffer, ())) for buffer in ("x", "y", "r", "s")}
    assert seen == {"x": False, "y": True, "r": False, "s": True}

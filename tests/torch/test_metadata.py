"""What torch says of values, as expressions; no guard is added."""

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.symbolic_shapes import ShapeEnv

import taskfuse as tf
from taskfuse.ir.scalar import const, sym
from taskfuse.torch.metadata import Refused, dtype_of, expression, hints_of, integer, meta_of, row_major, same_places, size_hint, symbols_of, torch_dtype
from tests.torch.graphs import traced


def test_dtypes_go_back_and_forth() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool, torch.uint8):
        assert torch_dtype(dtype_of(dtype)) is dtype
    with pytest.raises(Refused, match=r"complex64.*view_as_real"):
        dtype_of(torch.complex64)


def test_extents_are_expressions_and_no_guard_is_added() -> None:
    graph = traced(lambda x: torch.cat([x, x]).reshape(-1, 2, x.shape[1]).exp(), torch.randn(4, 3), symbolic=True)
    values = [n.meta["val"] for n in graph.graph.nodes if n.op == "placeholder"]
    env: ShapeEnv = values[0].fake_mode.shape_env
    before = len(env.guards)
    meta = meta_of(values[0])
    assert all(e.free for e in meta.shape)
    assert meta.dtype is tf.float32
    dims = dict(symbols_of(values[0]))
    assert [d.min for d in dims.values()] == [2, 2]
    assert hints_of(values[0]) == dict(zip(dims, (4, 3), strict=True))
    assert [size_hint(n) for n in (*values[0].shape, values[0].shape[0] * 2 - 1, 7)] == [4, 3, 7, 7]
    assert len(env.guards) == before


def test_expressions() -> None:
    sympy = pytest.importorskip("sympy")
    n = sympy.Symbol("n", integer=True, positive=True)
    assert expression(4 * n + 1) is sym("n") * 4 + 1
    assert expression(sympy.Max(n, 3)).free == {"n"}
    assert expression(n**2) is sym("n") * sym("n")
    with pytest.raises(Refused, match="an extent is"):
        expression(n / 2)
    assert integer(3) is const(3)


def test_strides_of_axes_of_extent_1_mean_nothing() -> None:
    shape = (const(4), const(1), const(3))
    assert row_major(shape) == (3, 3, 1)
    assert same_places(shape, row_major(shape), (const(3), const(99), const(1)))
    assert not same_places(shape, row_major(shape), (const(1), const(3), const(4)))


def test_numbers_on_the_host() -> None:
    assert meta_of(torch.tensor(1.0)).is_host_number
    assert not meta_of(torch.ones(1)).is_host_number
    with pytest.raises(Refused, match="not a strided tensor"):
        meta_of(torch.ones(2, 2).to_sparse())

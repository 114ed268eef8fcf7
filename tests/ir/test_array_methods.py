"""Operators of tensors, run-time scalars and extents: `==` compares elements, identity is `is`, constants are integers, symbols refuse."""

import ast
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import FusionError, SymbolError, TaskfuseError
from taskfuse.ir.scalar import NO_FACTS, const, prove, sym
from tests.ops.reference import message

ROOT = Path(__file__).parent.parent.parent


def test_equality_compares_elements() -> None:
    with tf.Fusion("f") as fusion:
        x, y = tf.define_tensor([6], name="x"), tf.define_tensor([6], name="y")
        fusion.add_output(tf.where(x == 0, 1.0, x), x != y, x == 2)
    a, b = np.array([0, 1, 2, 0, 4, 5], np.float32), np.arange(6, dtype=np.float32)
    for run in (fusion.evaluate, tf.compile(fusion)):
        chosen, differ, two = run(a, b)
        np.testing.assert_array_equal(chosen, np.where(a == 0, 1, a))
        np.testing.assert_array_equal(differ, a != b)
        np.testing.assert_array_equal(two, a == 2)


def test_identity() -> None:
    with tf.Fusion("f"):
        x, y = tf.define_tensor([6], name="x"), tf.define_tensor([6], name="y")
        assert {x: 1, y: 2}[y] == 2
        assert x in {x, y}
        assert len({x, y, x}) == 2
        assert (x.axis(0) == x.axis(0), x.axis(0) == y.axis(0)) == (True, False)
        assert len({x.axis(0), x.axis(0), y.axis(0)}) == 2
        assert message(lambda: bool(x == y)).endswith("combine conditions with & and |; ask whether two are one tensor with `is`")
        assert message(lambda: x == None).startswith("eq: NoneType is not an operand")  # noqa: E711 - what is asked here


def test_no_dataclass_compares_tensors() -> None:
    """A generated `__eq__` would compare elements."""
    found: list[str] = []
    for path in sorted((ROOT / "taskfuse").rglob("*.py")):
        for c in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(c, ast.ClassDef):
                made = [ast.unparse(d) for d in c.decorator_list]
                fields = [ast.unparse(a.annotation) for a in c.body if isinstance(a, ast.AnnAssign)]
                holds = any(f in ("TensorView", "AxisRef", "Scalar") or "tuple[TensorView" in f or "list[TensorView" in f for f in fields)
                if holds and any(m.startswith("dataclass") and "eq=False" not in m for m in made):
                    found.append(f"{path.name}:{c.name}")
    assert found == []


def test_run_time_scalars_have_operators() -> None:
    with tf.Fusion("f") as fusion:
        x, s, k = tf.define_tensor([4], name="x"), tf.define_scalar(name="s"), tf.define_scalar(tf.int64, "k")
        fusion.add_output((2 * s + 1) * x, -s / x, tf.where(s > 0, x, -x), k % 3 + (k << 1), s == 2)
    a = np.array([1, 2, 3, 4], np.float32)
    for run in (fusion.evaluate, tf.compile(fusion)):
        found = run(a, 3.0, 5)
        for value, wanted in zip(found, [7 * a, -3 / a, a, 12, False], strict=True):
            np.testing.assert_array_equal(value, np.asarray(wanted, value.dtype))


def extents() -> tuple[Any, Any, Any, Any]:
    with tf.Fusion("f"):
        x, y = tf.define_tensor([4, 6], name="x"), tf.define_tensor(["N", tf.dim("M", multiple_of=4)], name="y")
    return x, y, x.shape[1], y.shape[0]


def test_constant_extents_are_integers() -> None:
    x, _, n, _ = extents()
    assert (n == 6, n == 6, n != 6, n == 5, x.shape == (4, 6), x.shape == (4, 6), n == np.int64(6)) == (True, True, False, False, True, True, True)
    assert (n % 2 == 0, n > 2, n > 2, n <= 6, n >= 7, n < 6.5) == (True, True, True, True, False, True)
    assert (0.5 * n, n * 0.5, n / 4, 12 / n, n**2, 2**n, n + 0.5) == (3.0, 3.0, 1.5, 2.0, 36, 64, 6.5)
    assert (int(n), float(n), list(range(n)), [0] * n, "abcdefgh"[n], f"{n:03}", bool(n)) == (6, 6.0, list(range(6)), [0] * 6, "g", "006", True)
    assert ({6: "six"}[n], 6 in {n}, n in {6}, hash(n) == hash(6)) == ("six", True, True, True)
    assert np.zeros(x.shape).shape == (4, 6)
    assert np.arange(n, dtype=np.int64).tolist() == list(range(6))
    assert np.float32(0.5) * n == 3.0
    assert isinstance(pickle.loads(pickle.dumps(n)), type(n))


DECIDED_BY_VALUES: list[tuple[Callable[[Any], object], str]] = [
    (lambda n: n == 6, "whether N == 6 holds"),
    (lambda n: n % 2 == 0, "whether N % 2 == 0 holds"),
    (lambda n: (n, 3) == (4, 3), "whether N == 4 holds"),
    (lambda n: n > 2, "whether N > 2 holds"),
    (lambda n: n < 2.5, "whether N < 2.5 holds"),
    (lambda n: 0.5 * n, "the value of 0.5 * N"),
    (lambda n: n / 2, "the value of N / 2"),
    (lambda n: 2**n, "the value of 2 ** N"),
    (int, "the value of N"),
    (float, "the value of N"),
    (range, "the value of N"),
    (bool, "whether N holds"),
]


@pytest.mark.parametrize(
    ("ask", "what"),
    DECIDED_BY_VALUES,
)
def test_symbols_refuse_what_their_values_decide(ask: Callable[[Any], object], what: str) -> None:
    n = extents()[3]
    with pytest.raises(SymbolError) as caught:
        ask(n)
    assert caught.value.message == f"{what} is not known: it depends on values that are known only at a call"
    assert caught.value.help is not None
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
    assert isinstance(caught.value, TypeError)


def test_what_symbols_do_answer() -> None:
    _, y, _, n = extents()
    assert (n == n, n + 1 > n, 2 * n == 3, y.shape == y.shape, n == y.shape[1], n == 0.5, n is sym("N")) == (True, True, False, True, False, False, True)
    assert n**2 is n * n
    assert np.int64(2) * n is 2 * n
    assert prove(tf.scalar.eq(n, n), NO_FACTS)
    assert const(3) is const(True + 2)
    real: Any = 1.5
    with pytest.raises(TypeError, match=r"1\.5 is not an integer"):
        tf.scalar.maximum(n, real)


def test_extents_are_operands() -> None:
    with tf.Fusion("f") as fusion:
        x, k = tf.define_tensor(["N", 3], name="x"), tf.define_tensor([3], dtype=tf.int8, name="k")
        n, three = x.shape
        fusion.add_output(x / n, k * n, x * three, n - k, tf.where(x > n, x, n), tf.full([2], n))
    assert [tv.dtype for tv in fusion.outputs] == [tf.float32, tf.int64, tf.float32, tf.int64, tf.float32, tf.int64]
    a, b = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([1, 2, 100], np.int8)
    expected = [a / 4, b.astype(np.int64) * 4, a * 3, 4 - b.astype(np.int64), np.where(a > 4, a, 4), [4, 4]]
    for run in (fusion.evaluate, tf.compile(fusion)):
        for value, wanted in zip(run(a, b), expected, strict=True):
            np.testing.assert_array_equal(value, wanted)
    with tf.Fusion("g"):
        z = tf.define_tensor([3])
        with pytest.raises(FusionError, match="mul of N: 'N' is not one of its dimensions"):
            _ = z * n


def test_numbers_of_numpy() -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([4, 6], dtype=tf.float16, name="x")
        three, true = cast("float", np.float32(3)), cast("bool", np.bool_(True))
        fusion.add_output(x * three, x[np.int64(1) : np.int32(3), :: np.int64(2)], np.float64(2) - x, x[np.int64(2)], x + true)
    assert {tv.dtype for tv in fusion.outputs} == {tf.float16}
    a = np.arange(24, dtype=np.float16).reshape(4, 6)
    for value, wanted in zip(fusion.evaluate(a), [a * 3, a[1:3, ::2], 2 - a, a[2], a + 1], strict=True):
        np.testing.assert_array_equal(value, wanted)


def test_methods() -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([4, 6], name="x")
        made = [x.sum(dim=1, keepdim=True), x.max(-1), x.var(0, correction=1), x.std(), x.all(1), x.any(dim=0), x.argmin(1), x.cumsum(0), x.cumprod(dim=1)]
        made += [x.clip(0, 3), x.round(), x.flatten(), x.swapaxes(0, 1), x.transpose(1, 0), x.diagonal(), x.trace(), x.dot(x.T), x.mT, x.reshape([2, 12])]
        fusion.add_output(*map(tf.copy, made))
        assert len(x) == 4
    a = np.arange(24, dtype=np.float32).reshape(4, 6) / 7
    expected = [a.sum(1, keepdims=True), a.max(-1), a.var(0, ddof=1), a.std(), a.all(1), a.any(0), a.argmin(1), a.cumsum(0), a.cumprod(1), a.clip(0, 3)]
    expected += [a.round(), a.flatten(), a.swapaxes(0, 1), a.T, a.diagonal(), a.trace(), a @ a.T, a.T, a.reshape(2, 12)]
    for value, wanted in zip(fusion.evaluate(a), expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5)


def test_what_python_makes_of_numbers() -> None:
    with tf.Fusion("f") as fusion:
        x, s = tf.define_tensor([4, 6], name="x"), tf.define_tensor([], name="s")
        fusion.add_output(+x, *divmod(x, 2), *divmod(2, x), round(x), round(x, 1), x.round(2))
    a = np.linspace(0.3, 5, 24, dtype=np.float32).reshape(4, 6)
    wanted = [+a, *divmod(a, 2), *divmod(2, a), a.round(), a.round(1), a.round(2)]
    for value, expected in zip(fusion.evaluate(a, np.zeros((), np.float32)), wanted, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5)
    for number in (float, int):
        with pytest.raises(FusionError, match=f"s cannot become a Python {number.__name__}: its elements are not known yet") as caught:
            number(s)
        assert "x.astype(dtype)" in str(caught.value)


def test_names_that_others_have() -> None:
    for name, here in {"power": "pow", "mod": "remainder", "concatenate": "cat", "absolute": "abs"}.items():
        with pytest.raises(AttributeError, match=rf"taskfuse has no '{name}': write tf\.{here}$"):
            getattr(tf, name)
    with pytest.raises(AttributeError, match=r"taskfuse has no 'nonsense'$"):
        getattr(tf, "non" + "sense")


# What np.ndarray and torch.Tensor both have, but for what needs values or places in memory.
BOTH = (
    *("T", "mT", "all", "any", "argmax", "argmin", "clip", "cumprod", "cumsum", "diagonal", "dot", "dtype", "flatten", "max", "mean", "min"),
    *("ndim", "prod", "ravel", "reshape", "round", "shape", "squeeze", "std", "sum", "swapaxes", "trace", "transpose", "var"),
)
UNKNOWN = "its elements are not known"
REFUSED = {
    **{"item": UNKNOWN, "tolist": UNKNOWN, "nonzero": "write tf.nonzero(x)", "sort": "write tf.sort(x)", "argsort": "write tf.argsort(x)"},
    **{"size": "x.shape", "repeat": "tf.repeat", "take": "tf.take", "view": "x.reshape", "exp": "write tf.exp(x)"},
}


def test_methods_that_numpy_and_torch_share() -> None:
    x = extents()[0]
    assert [name for name in BOTH if not hasattr(x, name)] == []
    for name, instead in REFUSED.items():
        with pytest.raises(AttributeError) as caught:
            getattr(x, name)
        assert str(caught.value).startswith(f"a tensor has no attribute '{name}': ")
        assert instead in str(caught.value)
    with pytest.raises(TaskfuseError, match="are an order in NumPy and a swap in torch"):
        x.transpose(0, 1)
    with pytest.raises(SymbolError, match="the value of N is not known"):
        len(extents()[1])

"""Elementwise ops with torch's signatures: the values of torch, on dtypes that promote."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.torch.settings import Settings
from tests.torch.graphs import check, report

ALONE = Settings(strict=True, run="reference", cache=False, least=1)

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "add_alpha": lambda x, y: torch.add(x, y, alpha=3),
    "sub_alpha": lambda x, y: torch.sub(x, y, alpha=2),
    "rsub": lambda x, y: torch.rsub(x, 3, alpha=2),
    "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "clamp": lambda x, y: x.clamp(-0.5, 0.75),
    "clamp_tensor": lambda x, y: torch.clamp(x, y, None),
    "square": lambda x, y: x**2,
    "cube": lambda x, y: x**3,
    "gelu": lambda x, y: torch.nn.functional.gelu(x, approximate="tanh"),
    "leaky": lambda x, y: torch.nn.functional.leaky_relu(x, 0.2),
    "elu": lambda x, y: torch.nn.functional.elu(x, 1.5),
    "where": lambda x, y: torch.where(x > y, x, 2.0),
    "masked": lambda x, y: x.masked_fill(x > y, -1),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "nan": lambda x, y: torch.nan_to_num(x / 0, 1.0, 2.0, -3.0),
    "tenth": lambda x, y: x * 0.1,
    "compare": lambda x, y: (x < y, x == 0, torch.logical_and(x > 0, y > 0)),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_torch(name: str, dtype: str) -> None:
    torch.manual_seed(0)
    x, y = (torch.randn(3, 5).to(getattr(torch, dtype)) for _ in range(2))
    check(CASES[name], x, y, settings=ALONE, fusions=None)


def test_a_number_beside_16_bit_floats_is_not_rounded_to_them() -> None:
    """torch multiplies in float32: bfloat16(0.1) would give other results for some of these."""
    x = torch.arange(1, 257).to(torch.bfloat16)
    got = check(lambda x: x * 0.1, x, settings=ALONE, fusions=1)
    assert not torch.equal(x * 0.1, x * torch.tensor(0.1, dtype=torch.bfloat16).expand(256))
    assert got.fusions


def test_dtypes_promote_as_in_torch() -> None:
    i, f, b = torch.arange(4), torch.ones(4), torch.tensor([True, False, True, True])
    check(lambda i, f, b: (i + f, i * 2.5, b + i, i / 2, torch.tensor(2.0) * i), i, f, b, settings=ALONE)


def test_integers_are_rounded_towards_zero() -> None:
    check(lambda x: torch.div(x, 2, rounding_mode="trunc"), torch.arange(-3, 4), settings=ALONE)


def test_special_functions() -> None:
    x = torch.randn(50, dtype=torch.float64)
    check(lambda x: (torch.lgamma(x), torch.digamma(x), torch.erfinv(x / 4), torch.polygamma(2, x)), x.abs() + 0.1, settings=ALONE)
    check(lambda x: (torch.round(x, decimals=2), torch.logcumsumexp(x, 0)), x, settings=ALONE)
    check(torch.gcd, torch.arange(-9, 9), torch.arange(18), settings=ALONE)


SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -1.5, 2.5, 3.0, -3.0, 1e-40, -1e-40, 3e38, -3e38, 88.0, -104.0, 1 - 6e-8, 1e8]
OTHERWISE = {"special_zeta"}
"""Of NaN and of huge numbers torch's gives infinities or NaN, by the order of its tests."""


def test_values_that_are_no_usual_numbers() -> None:
    """Every elementwise op by its names in torch, of infinities, NaN, signed zeros, subnormal and huge numbers; of pairs of them."""
    one = torch.tensor(SPECIAL)
    pairs = one.repeat_interleave(len(SPECIAL)), one.repeat(len(SPECIAL))
    names = {name for row in ELEMENTWISE.values() for name in (row.torch or "").split()} - OTHERWISE
    tried = 0
    for name in sorted(names):
        function: Any = getattr(torch, name, None) or getattr(torch.special, name.removeprefix("special_"), None)
        for args in ((one,), pairs):
            try:
                want = function(*args)
            except (TypeError, RuntimeError, NotImplementedError):
                continue
            if isinstance(want, torch.Tensor):
                found = report(function, *args, settings=ALONE)
                tried += bool(found.fusions)
                got = found.program(list(args))[0]
                torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5, equal_nan=True, msg=partial("{}: {}".format, name))
    assert tried > 60


def test_small_floats_of_what_is_too_great() -> None:
    """As torch has it on that device: NaN or the greatest number in ``float8_e4m3``, infinity in ``float8_e5m2``."""
    x = torch.tensor([448.0, 449.0, 464.0, 465.0, 1e9, -1e9, float("inf"), -float("inf"), float("nan"), 57344.0, 61440.0])
    for wide in (torch.float32, torch.float64, torch.bfloat16):
        check(lambda x: (x.to(torch.float8_e4m3fn).float(), x.to(torch.float8_e5m2).float()), x.to(wide))

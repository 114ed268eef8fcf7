"""Fusions as functions on torch tensors: by the reference, and by kernels in the simulator."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import taskfuse as tf
from taskfuse.errors import InputError
from taskfuse.torch.kernels import Compiled, array, tensor
from taskfuse.torch.settings import Run, Settings
from tests.torch.graphs import check, report
from tests.torch.launches import Watched, launches

__all__ = ["launches"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int64", "bool", "float8_e4m3fn"])
def test_tensors_become_arrays_and_return(dtype: str) -> None:
    x = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    again = tensor(array(x))
    assert again.dtype is x.dtype
    assert torch.equal(again.to(torch.float64), x.to(torch.float64))


def test_kernels_run_in_the_simulator() -> None:
    simulator = Settings(strict=True, run="simulator", cache=False)
    x, scale = torch.randn(4, 8), torch.tensor(2.0, dtype=torch.float64)
    found = check(lambda x, s: torch.nn.functional.layer_norm(x * s, (8,)), x, scale, settings=simulator, fusions=1)
    run = found.program.fusions[0].executable
    assert run is not None
    assert run.kernels


@pytest.mark.parametrize("run", ["reference", "simulator"])
def test_strides_of_results(run: Run) -> None:
    settings = Settings(strict=True, run=run, cache=False)
    check(lambda x: (x.t().exp() + 1, (x.exp() + 1).t()), torch.randn(3, 4), settings=settings)


def test_tensors_of_other_dtypes_than_torch_said_are_converted() -> None:
    with tf.Fusion("region") as fusion:
        fusion.add_output(tf.define_tensor([3], name="x") * 2)
    run = Compiled(str(fusion), "reference", 1, 0)
    (y,) = run(torch.ones(3, dtype=torch.bfloat16))
    assert y.dtype is torch.float32
    with pytest.raises(InputError, match="dimension 0 of x is 3, the array has 4"):
        run(torch.ones(4))


HALF = torch.bfloat16
FORMS: dict[str, Any] = {
    "transposed": torch.zeros(64, 32, dtype=HALF).mT,
    "odd rows": torch.zeros(32, 65, dtype=HALF)[:, :64],
    "from an odd element on": torch.zeros(32 * 64 + 1, dtype=HALF)[1:].view(32, 64),
    "every second": torch.zeros(32, 128, dtype=HALF)[:, ::2],
    "broadcast": torch.zeros(1, 64, dtype=HALF).expand(32, 64),
    "overlapping": torch.zeros(96, dtype=HALF).as_strided((32, 64), (1, 1)),
    "a part of rows": torch.zeros(32, 192, dtype=HALF).chunk(3, 1)[1],
}


@pytest.mark.parametrize("form", FORMS)
def test_inputs_of_any_strides_are_launched(form: str, launches: Watched) -> None:
    """What the copy engine cannot load as it lies is left to torch, or loaded by threads: no launch is refused."""
    settings = Settings(strict=True, cache=False, processes=1, products=True)
    x, w = FORMS[form], torch.zeros(64, 64, dtype=HALF)
    functions: list[Callable[[Any, Any], Any]] = [lambda x, w: (x @ w).relu(), lambda x, w: (w @ x.mT) * 2, lambda x, w: torch.softmax(x.float(), -1)]
    for function in functions:
        (y,) = report(function, x, w, settings=settings).program([x, w])
        assert y.stride() == function(x, w).stride()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 4)])
def test_empty_results_have_torchs_strides(shape: tuple[int, ...]) -> None:
    check(lambda x: (x * 2, x.sum(0)), torch.zeros(shape))

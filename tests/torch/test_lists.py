"""Ops of lists of tensors, tensor by tensor: what torch computes, and no op of a list is left."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.torch.compilation import GraphReport, listeners
from taskfuse.torch.lists import of_lists
from tests.torch.graphs import compiled


def given(op: Any) -> list[Any]:
    """Arguments of an op of lists, from its schema: tensors between 0.5 and 1, in which nearly all functions are defined."""
    found: list[Any] = []
    for k, argument in enumerate(op._schema.arguments):
        match "" if argument.kwarg_only else str(argument.type):
            case "List[Tensor]":
                found.append([torch.rand(3, 4) / 2 + 0.5, torch.rand(5) / 2 + 0.5])
            case "List[number]":
                found.append([0.75, 2])
            case "number":
                found.append(2 if argument.name == "ord" else 0.75)
            case "Tensor" if argument.name == "scalars":
                found.append(torch.tensor([0.75, 2.0]))
            case "Tensor":
                found.append(torch.tensor(0.75 if k < 2 else 1.5))
            case _:
                break
    return found


def test_each_op() -> None:
    torch.manual_seed(0)
    table = of_lists("cpu")
    assert len(table) > 70
    for op, body in table.items():
        args = given(op)
        torch.testing.assert_close(body(*args), op(*args), msg=f"{op}")


def test_numbers_by_name() -> None:
    a, b = ([torch.rand(3), torch.rand(2, 2)] for _ in range(2))
    table, aten = of_lists("cpu"), torch.ops.aten
    for op, args, named in (
        (aten._foreach_add.List, (a, b), {"alpha": 2}),
        (aten._foreach_addcmul.Scalar, (a, b, b), {"value": 3}),
        (aten._foreach_addcdiv.ScalarList, (a, b, b), {"scalars": [1.0, 2.0]}),
        (aten._foreach_mul.ScalarList, (a,), {"scalars": [1.0, 2.0]}),
        (aten._foreach_norm.Scalar, (a, 1), {"dtype": torch.float64}),
    ):
        torch.testing.assert_close(table[op](*args, **named), op(*args, **named))
    assert of_lists("cuda")[aten._foreach_add.List](a, b) is NotImplemented, "lists of other devices stay whole"


def test_what_is_not_finite_is_found() -> None:
    check = torch.ops.aten._amp_foreach_non_finite_check_and_unscale.default
    for wrong in (float("inf"), float("nan"), 1.0):
        for before in (0.0, 1.0):
            args = [torch.ones(3), torch.tensor([1.0, wrong])], torch.tensor(before), torch.tensor(0.5)
            torch.testing.assert_close(of_lists("cpu")[check](*args), check(*args), equal_nan=True)


def test_a_step_of_an_optimizer() -> None:
    """Gradients that are clipped together, a moment, and parameters: nothing is left to torch, and nothing is copied."""

    def step(params: list[Any], moments: list[Any], grads: list[Any]) -> Any:
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        torch._foreach_mul_(grads, (1.0 / (norm + 1e-6)).clamp(max=1.0))
        torch._foreach_lerp_(moments, grads, 0.1)
        torch._foreach_addcdiv_(params, moments, torch._foreach_add(torch._foreach_abs(moments), 1e-3), value=-0.01)
        return norm

    ours, theirs = ([[torch.randn(n, 3, generator=torch.Generator().manual_seed(k)) for n in range(2, 5)] for k in range(3)] for _ in range(2))
    found: list[GraphReport] = []
    listeners.append(found.append)
    try:
        norm = compiled(step)(*ours)
    finally:
        listeners.remove(found.append)
    torch.testing.assert_close([norm, *ours], [step(*theirs), *theirs])
    assert not any(where == "left to torch" for _, _, where, _ in found[0].ops), found[0].ops
    assert sum(len(kernels.stored) for _, kernels in found[0].fusions.values()) == 9

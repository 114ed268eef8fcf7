"""The source of a graph: what it frees, what it refers to, strides, pickling."""

import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx

from taskfuse.torch.calls import OpName
from taskfuse.torch.compilation import program_of
from taskfuse.torch.program import laid
from tests.torch.graphs import REFERENCE, check, compiled, foreign, report, transposed


def test_values_are_dropped_after_their_last_use() -> None:
    found = check(lambda x: foreign((x.exp() + 1).sin()).exp() * 2, torch.randn(5), fusions=2)
    source = found.program.source
    lines = source.splitlines()
    for k, line in enumerate(lines):
        if line.strip().startswith("del "):
            for name in line.strip()[4:].split(", "):
                assert not any(name in later.replace(",", " ").replace("(", " ").replace(")", " ").split() for later in lines[k + 1 :])
    assert "inputs.clear()" in source
    inputs = [torch.randn(5)]
    found.program(inputs)
    assert inputs == []


def test_a_program_is_pickled_with_its_ops_and_fusions() -> None:
    x = torch.randn(5)
    program = check(lambda x: foreign(x.exp() + 1), x, fusions=1).program
    again = pickle.loads(pickle.dumps(program))
    assert again.source == program.source
    torch.testing.assert_close(again([x])[0], program([x])[0])
    assert sum(type(c) is OpName for c in again.constants.values()) == 1
    assert len(again.fusions) == 1


def test_results_that_are_given_twice_or_are_none_or_inputs() -> None:
    def twice(x: Any) -> list[Any]:
        y = x.exp() + 1
        return [y, y, x]

    check(twice, torch.randn(3))


def test_symbols_of_the_source_come_from_arguments() -> None:
    source = check(lambda x: (x.exp() + 1).sum(0), torch.randn(4, 3), symbolic=True, fusions=1).program.source
    assert "fusion_" in source


def test_sizes_that_are_greatest_or_rounded_up() -> None:
    """As those of convolutions and windows are: what torch says of them are functions that Python calls otherwise."""

    def function(x: Any, n: int) -> Any:
        return foreign(x.new_ones(3, torch.sym_max(n - 3, 1))) * 2 + foreign(x.new_ones((n + 2) // 3, 1, 1))

    source = check(function, torch.randn(4), 7, symbolic=True).program.source
    assert "max(" in source


def test_sizes_that_depend_on_data() -> None:
    """They have values only once their tensor is there: its own strides may name them, and fusions that nothing tells what they are."""

    def function(x: Any) -> Any:
        i = torch.nonzero(x > 0)  # its strides are (1, its length)
        return (x[i[:, 0], i[:, 1]] * 2).sin()

    x = torch.randn(4, 8)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torch.testing.assert_close(compiled(function)(x), function(x))


def test_strides() -> None:
    y = torch.arange(6.0).reshape(2, 3)
    assert laid(y, (1, 2), y.dtype).stride() == (1, 2)
    assert torch.equal(laid(y, (1, 2), y.dtype), y)
    one = torch.ones(1, 3)
    assert laid(one, (99, 1), one.dtype).data_ptr() == one.data_ptr()
    assert laid(one, (99, 1), one.dtype).stride() == (99, 1)


def test_common_ops_are_called_the_short_way() -> None:
    """The results are those of the ops themselves, also with scalars, numbers and keywords."""

    def function(x: Any, b: Any) -> list[Any]:
        y = foreign(x)
        found = [y.view(6), y.t(), y.permute(1, 0), y.unsqueeze(0).expand(4, -1, -1), y.transpose(0, 1), y.select(1, 0), y[:, :1].squeeze(1)]
        return [*found, torch.addmm(b, y, y.t(), beta=0.5), torch.mm(y, y.t()), torch.add(y, 1, alpha=2), y * 2.5, y - y]

    program = check(function, torch.randn(2, 3), torch.randn(2)).program
    assert "torch_addmm" in program.source
    assert "view = viewed(foreign, (6, ), (1, ), 0)" in program.source


def test_results_of_ops_left_to_torch_have_the_strides_that_torch_said() -> None:
    """Callers rely on them: a view after a graph break, and the backward graph, whose inputs no guard sees."""
    program = report(lambda x: transposed(x + 1), torch.randn(3, 4)).program
    x = torch.randn(3, 4)
    (y,) = program([x])
    assert y.stride() == (4, 1)
    assert torch.equal(y, x + 1)


def test_a_backward_graph_checks_what_it_is_given() -> None:
    """Hooks may save tensors in other strides; addresses alone say nothing of these."""

    def function(saved: Any, tangents: Any) -> Any:
        return [saved * tangents]

    saved, tangents = torch.randn(3, 4).t(), torch.randn(4, 3)
    program = program_of(make_fx(function, tracing_mode="fake")(saved, tangents), "backward", REFERENCE)
    for given in (saved, saved.contiguous()):
        (y,) = program([given, tangents])
        assert torch.equal(y, saved * tangents)
    assert "saved_1.stride() != (1, 4, )" in program.source
    assert "tangents_1.stride() != (3, 1, )" in program.source

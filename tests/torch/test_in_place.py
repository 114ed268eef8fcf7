"""Copies into arguments by the fusions that make what is copied: which are taken, what runs before, and what is left to torch after all."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import taskfuse as tf
from taskfuse.errors import OutputError
from taskfuse.torch.compilation import GraphReport
from taskfuse.torch.fates import WRITES
from taskfuse.torch.in_place import OVERWRITES
from taskfuse.torch.metadata import Refused
from taskfuse.torch.reports import explain
from taskfuse.torch.settings import Settings
from tests.calls import Of
from tests.torch.graphs import REFERENCE, foreign, report


@pytest.fixture(autouse=True)
def numbers() -> None:
    """The same in each run: some functions, called twice, make rounding errors great."""
    torch.manual_seed(0)


def written(function: Of[Any, Any], *inputs: Any, settings: Settings = REFERENCE) -> tuple[GraphReport, list[str]]:
    """What the compiler makes of a function that writes to its arguments, and why copies are left to torch. Results and arguments are torch's, twice."""
    found = report(function, *inputs, settings=settings)
    ours, theirs = ([x.clone() for x in inputs] for _ in range(2))
    for _ in range(2):
        got, want = found.program(list(ours)), function(*theirs)
        torch.testing.assert_close([*got, *ours], [*(want if isinstance(want, tuple) else [want]), *theirs], rtol=1e-3, atol=1e-3, equal_nan=True)
    return found, [reason for _, op, where, reason in found.ops if op == "aten.copy_.default" and where == "left to torch"]


def test_a_step_of_an_optimizer_copies_nothing() -> None:
    def step(p: Any, m: Any, g: Any) -> Any:
        m.mul_(0.9).add_(g)
        p.sub_(m * 0.1)
        return m * 1.0

    found, left = written(step, *(torch.randn(5, 7) for _ in range(3)))
    assert not left
    assert "copy_(" not in found.program.source
    (compiled,) = found.program.fusions
    assert sorted(compiled.stored.values()) == [0, 2], "the moment comes first, then the gradient"
    assert found.program.source.count("fusion") == 1


def test_other_readers_run_before() -> None:
    """An op of torch, a fusion behind it, and a view of the argument that torch makes."""

    def function(x: Any, y: Any) -> Any:
        late = foreign(x[1:]) * 2
        z = foreign(y)
        x.add_(y)
        return late.exp(), z

    found, left = written(function, torch.randn(4, 4), torch.randn(4, 4))
    assert not left
    assert found.program.source.index("foreign") < found.program.source.index("fusion")


def test_a_reader_that_needs_what_the_region_makes_keeps_the_copy() -> None:
    def function(x: Any) -> Any:
        new = x.sin() + 1
        y = foreign(new) * x
        x.copy_(new)
        return y

    assert written(function, torch.randn(4, 4))[1] == [WRITES]


def test_two_fusions_that_would_wait_for_each_other() -> None:
    """Each reads what the other one overwrites: one of them writes in place."""

    def function(x: Any, y: Any) -> Any:
        a, b = foreign(x).sin() + y, foreign(y).cos() * x
        x.copy_(a)
        y.copy_(b)
        return foreign(a), foreign(b)

    _, left = written(function, torch.randn(4, 4), torch.randn(4, 4))
    assert left == [WRITES]


def test_random_numbers_keep_their_order() -> None:
    """What has to run before a fusion depends on a mask that is drawn after another one."""

    def function(x: Any, y: Any) -> Any:
        x_new = x + y
        first = foreign(x_new) + torch.rand_like(y)
        second = torch.rand_like(y) * foreign(x)
        x.copy_(x_new)
        return first, second

    found = report(function, torch.randn(4, 4), torch.randn(4, 4))
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    torch.manual_seed(0)
    got = found.program([x.clone(), y])
    torch.manual_seed(0)
    torch.testing.assert_close(got, [*function(x, y)])


def test_copies_of_elements_that_share_a_place() -> None:
    """Torch refuses them, too, where they run; the compiler leaves them alone."""

    def function(x: Any, y: Any) -> Any:
        x.add_(y)
        return y * 2

    overlapping = torch.zeros(7).as_strided((3, 5), (1, 1))
    found = report(function, overlapping, torch.zeros(3, 5))
    assert not any(compiled.stored for compiled in found.program.fusions)


def test_a_kernel_that_would_overwrite_what_it_reads_leaves_the_copy_to_torch() -> None:
    def turned(x: Any) -> Any:
        x.copy_(x.flip(0).exp())
        return x.new_ones(3)

    def alone(x: Any) -> Any:
        x.copy_(x.exp())
        return x.new_ones(3)

    settings = Settings(strict=True, run="simulator", cache=False)
    assert written(turned, torch.randn(6, 4), settings=settings)[1] == [OVERWRITES]
    assert not written(alone, torch.randn(6, 4), settings=settings)[1]


def test_what_no_fusion_writes_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    add_output = tf.Fusion.add_output

    def refusing(self: tf.Fusion, *tensors: Any, into: Any = None, **more: Any) -> None:
        if into is not None:
            raise Refused("it is a table")
        add_output(self, *tensors, **more)

    monkeypatch.setattr(tf.Fusion, "add_output", refusing)
    found, left = written(lambda x: x.mul_(2).sum() + 1, torch.randn(4, 4))
    assert left == ["it is a table"]
    assert len(found.fusions) == 1


def test_arguments_that_overlap_one_that_is_written() -> None:
    """No guard of torch sees it where the first call's did not overlap, and a kernel refuses them: it then writes into a copy."""
    settings = Settings(strict=True, run="simulator", cache=False)
    found = report(lambda x, y: (x.add_(y), torch.ones(1))[1], torch.randn(6, 4), torch.randn(6, 4), settings=settings)
    (compiled,) = found.program.fusions
    inner: Any = compiled.executable

    def careful(x: Any, y: Any) -> Any:
        if np.shares_memory(x, y):
            raise OutputError(index=0, fusion="careful", reason="it overlaps an input")
        return inner(x, y)

    whole = torch.arange(28.0)
    x, y = whole[:24].view(6, 4), whole[4:].view(6, 4)
    want = x + y
    (got,) = replace(compiled, executable=careful)(x, y)
    assert got is x
    torch.testing.assert_close(x, want)


def test_explain_writes_once() -> None:
    """It times fusions by more calls."""
    norm, x = torch.nn.BatchNorm1d(4), torch.randn(8, 4)
    with torch.no_grad():
        explain(norm, x, options={"run": "reference"})
    torch.testing.assert_close(norm.running_mean, 0.1 * x.mean(0))


@pytest.mark.parametrize("seed", range(6))
def test_random_updates(seed: int) -> None:
    """Arguments and views of them are read and written, by fusions and by torch."""
    draw = random.Random(seed)
    lines: list[tuple[str, int, int]] = [
        (draw.choice(("add", "copy", "foreign", "view", "new", "part")), draw.randrange(3), draw.randrange(3)) for _ in range(7)
    ]

    def function(*args: Any) -> Any:
        made: list[Any] = []
        for what, a, b in lines:
            x, y = args[a], made[b] if b < len(made) else args[b]
            match what:
                case "add":
                    x.add_(y.sin())
                case "copy":
                    x.copy_(y * 0.5 + 1)
                case "foreign":
                    made.append(foreign(x) + y)
                case "view":
                    made.append(x.t() * y)
                case "part":
                    x[1:].mul_(y[:1])
                case _:
                    made.append(x.exp().sum(0, keepdim=True) / 8 + y)
        return tuple(made) or args[0] * 1

    for _ in range(3):
        written(function, *(torch.randn(4, 4) for _ in range(3)))
        lines = [(draw.choice(("add", "copy", "foreign", "view", "new", "part")), draw.randrange(3), draw.randrange(3)) for _ in range(7)]

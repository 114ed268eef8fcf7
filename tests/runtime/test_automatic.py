"""Executables of automatic schedules: every kernel was made by the maker of the call; equal segments are made once."""

from math import inf
from typing import Any, cast

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import ProofError, UnsupportedError
from taskfuse.kir import Kernel
from taskfuse.runtime import automatic
from taskfuse.runtime.automatic import as_scheduled, assumed, auto_scheduled
from taskfuse.runtime.chain import Chain
from taskfuse.runtime.executable import Executable
from taskfuse.runtime.kernel import CompiledKernel, Maker
from taskfuse.schedulers import candidates
from taskfuse.schedulers import schedule as schedules
from taskfuse.schedulers.alpha_equivalence import form
from taskfuse.schedulers.candidates import MOST_PARAMETERS
from taskfuse.schedulers.schedule import Chosen
from taskfuse.schedulers.segmentation import Segmentation
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.target import DEFAULT
from tests.calls import always
from tests.runtime.simulated import scaled
from tests.schedulers.fusions import tensor
from tests.schedulers.tried import built


class Counting(Maker):
    """A maker that says what it made."""

    made: list[str]

    def __call__(self, fusion: tf.Fusion | Kernel, schedule: Any = None) -> Executable:
        self.made.append(fusion.name)
        return super().__call__(fusion, schedule)


def maker() -> Counting:
    made = Counting("sim", cache=False)
    object.__setattr__(made, "made", [])
    return made


def one() -> list[tf.TensorView]:
    return [tf.exp(tensor("x", 4, 64))]


def columns_after_rows() -> list[tf.TensorView]:
    x = tf.softmax(tensor("x", 64, 64), axis=1)
    return [tf.softmax(x, axis=0), x]


def test_one_kernel_and_its_schedule() -> None:
    make = maker()
    run = auto_scheduled(built(one), make, sizes=None, target=DEFAULT)
    assert isinstance(run, CompiledKernel)
    assert make.made == ["fusion"]
    assert run.schedule is not None
    assert run.schedule.scheduler == "pointwise"
    schedule = run.schedule
    assert isinstance(schedule, Chosen)
    assert schedule.count is not None  # what its kernel does was counted


def test_several_kernels_are_a_chain_of_what_was_made() -> None:
    make = maker()
    fusion = built(columns_after_rows)
    run = auto_scheduled(fusion, make, sizes=None, target=DEFAULT)
    assert isinstance(run, Chain)
    assert run.arguments == ("x",)
    assert len(run.kernels) == 2
    assert not fusion.has_schedule
    assert {k.name for k in run.kernels} <= set(make.made)


def test_a_segment_that_is_the_whole_is_neither_made_nor_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every kernel is far from its roofline, other parameters are counted, and segments are searched."""
    monkeypatch.setattr(schedules, "SANE", 0.0)
    counted: list[str] = []

    def lowered(fusion: tf.Fusion, *args: Any) -> Kernel:
        counted.append(form(fusion).text)
        return tf.lower(fusion, *args)

    monkeypatch.setattr(candidates, "lower", lowered)
    made: list[tuple[str, str]] = []

    class Seen(Maker):
        def __call__(self, fusion: tf.Fusion | Kernel, schedule: Any = None) -> Executable:
            assert isinstance(fusion, tf.Fusion)
            made.append((fusion.name, form(fusion).text))
            return super().__call__(fusion, schedule)

    run = auto_scheduled(built(one), Seen("sim", cache=False), sizes=None, target=DEFAULT)
    assert isinstance(run, CompiledKernel)
    assert len(counted) == len(set(counted)) > 1
    assert not any(text in {before for _, before in made[:k]} for k, (name, text) in enumerate(made) if name != "fusion")


def test_a_schedule_that_is_there_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fusion = built(one)
    known = choose_segments(fusion)

    def search(*_: object, **__: object) -> Segmentation:
        raise AssertionError("it is known")

    monkeypatch.setattr(automatic, "choose_segments", search)
    make = maker()
    run = auto_scheduled(fusion, make, sizes=None, target=DEFAULT, known=known)
    assert make.made == ["fusion"]
    assert run.schedule is known.steps[0].schedule


def test_one_that_makes_no_kernel_is_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fusion = built(one)
    known = choose_segments(fusion)
    searched: list[tf.Fusion] = []

    def search(asked: tf.Fusion, **options: Any) -> Segmentation:
        searched.append(asked)
        return choose_segments(asked, **options)

    class Refusing(Counting):
        def __call__(self, fusion: tf.Fusion | Kernel, schedule: Any = None) -> Executable:
            if schedule is known.steps[0].schedule:
                raise UnsupportedError(what="this", reason="not here")
            return super().__call__(fusion, schedule)

    make = Refusing("sim", cache=False)
    object.__setattr__(make, "made", [])
    monkeypatch.setattr(automatic, "choose_segments", search)
    run = auto_scheduled(fusion, make, sizes=None, target=DEFAULT, known=known)
    assert searched == [fusion]
    assert run.schedule is not known.steps[0].schedule


def test_sizes_are_checked_before_anything_is_made() -> None:
    make = maker()
    known = choose_segments(built(one))  # a decision that is there asks nobody for sizes
    with pytest.raises(UnsupportedError, match="sizes has 'Q', which is not a dimension of it"):
        auto_scheduled(built(one), make, sizes={"Q": 1}, target=DEFAULT, known=known)
    assert make.made == []


def test_as_it_is_scheduled() -> None:
    make = maker()
    run = as_scheduled(scaled(), make)
    assert make.made == ["scaled"]
    assert run.schedule is None
    assert run.arguments == ("x", "a")


def test_a_kernel_that_is_proved_for_no_extents_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its proof is open for all extents, and fails for those that are assumed, no call would run it."""
    asked: list[dict[str, int]] = []

    def refuse(self: CompiledKernel, extents: dict[str, int]) -> None:
        asked.append(extents)
        if len(asked) == 1:
            raise ProofError(kernel=self.name, verdict="outside the model", reason="nothing is known of it")

    monkeypatch.setattr(CompiledKernel, "check_open", refuse)
    run = auto_scheduled(built(symbolic), maker(), sizes={"N": 640}, target=DEFAULT)
    assert asked == 2 * [{"N": 640}]
    assert run.schedule is not None
    assert "nothing is known of it" in run.schedule.explain()


@pytest.mark.parametrize("refused", [0, 1, 2])
def test_machine_code_is_made_of_the_kernels_that_run(monkeypatch: pytest.MonkeyPatch, refused: int) -> None:
    """Others may have been made and proved on the way. The search is repeated without one that a GPU does not run; then each is asked for once."""
    asked: list[Kernel] = []
    searched: list[tf.Fusion] = []

    def check(self: CompiledKernel, target: tf.Target) -> None:
        asked.append(self.kernel)
        if len(asked) == refused:
            raise UnsupportedError(what="this", reason="it is too large")

    def search(fusion: tf.Fusion, **options: Any) -> Segmentation:
        searched.append(fusion)
        return choose_segments(fusion, **options)

    monkeypatch.setattr(CompiledKernel, "check_code", check)
    monkeypatch.setattr(CompiledKernel, "lost_registers", always(0.0))
    monkeypatch.setattr("taskfuse.cuda.fit.Ahead.begin", always(None))
    monkeypatch.setattr(automatic, "choose_segments", search)
    make = maker()
    object.__setattr__(make, "backend", "cuda")
    run = auto_scheduled(built(columns_after_rows), make, sizes=None, target=DEFAULT)
    assert len(searched) == (2 if refused else 1)
    assert all(k in asked for k in run.kernels)
    assert all(k != other for n, k in enumerate(asked) for other in asked[:n]), "none twice"
    if refused:
        assert asked[refused - 1] not in run.kernels
        assert run.schedule is not None
        assert "it is too large" in run.schedule.explain()
    else:
        assert len(asked) == len(run.kernels)


def symbolic() -> list[tf.TensorView]:
    return [tf.exp(tf.define_tensor(["N"], name="x"))]


def test_assumed_extents_are_those_of_a_part() -> None:
    assert assumed(built(symbolic), None, DEFAULT) == {"N": 4096}
    assert assumed(built(symbolic), {"N": 7, "M": 8}, DEFAULT) == {"N": 7}
    with tf.Fusion("dozens") as fusion:
        fusion.add_output(tf.exp(tf.define_tensor([tf.dim("N", multiple_of=12, max=100)], name="x")))
    assert assumed(fusion, {"N": 7}, DEFAULT) == {"N": 12}, "those that it may have"
    assert assumed(fusion, None, DEFAULT) == {"N": 96}


def long_rows() -> list[tf.TensorView]:
    return [tf.sum(tensor("x", 64, 4096), axis=1)]


@pytest.mark.parametrize("losing", [0, 2, 99])
def test_a_kernel_that_loses_registers_gives_way_to_other_parameters(monkeypatch: pytest.MonkeyPatch, losing: int) -> None:
    """To the first that keeps theirs; where none does, or none is expected to be nearly as fast, the kernel stays."""
    asked: list[Kernel] = []

    def lost(self: CompiledKernel, target: tf.Target) -> float:
        asked.append(self.kernel)
        return inf if len(asked) <= losing else 8.0

    monkeypatch.setattr(CompiledKernel, "lost_registers", lost)
    monkeypatch.setattr(CompiledKernel, "check_code", always(None))
    make = maker()
    object.__setattr__(make, "backend", "cuda")
    fusion = built(long_rows)
    run = auto_scheduled(fusion, make, sizes=None, target=DEFAULT)
    assert isinstance(run, CompiledKernel)
    chosen = cast("Chosen[Any]", run.schedule)
    first = choose_segments(fusion).steps[0].schedule
    others = [o for o in first.alternatives if o.config != first.config and o.us <= automatic.LOSS * first.us]
    assert len(others) >= 2
    assert len(asked) == 1 + min(losing, len(others), MOST_PARAMETERS)
    assert run.kernel is asked[0 if losing == 99 else losing]
    assert chosen.config == (first.config if losing in (0, 99) else others[losing - 1].config)
    assert not chosen.given


@pytest.mark.parametrize(("lost", "taken"), [((32.0,), 0), ((900.0, 32.0), 1), ((900.0, 400.0, inf, 80.0, 200.0), 3)])
def test_the_parameters_that_spill_least(monkeypatch: pytest.MonkeyPatch, lost: tuple[float, ...], taken: int) -> None:
    """The first that spill at most a few bytes; if none do, those that spill least."""
    asked: list[Kernel] = []

    def lose(self: CompiledKernel, target: tf.Target) -> float:
        asked.append(self.kernel)
        return lost[len(asked) - 1]

    monkeypatch.setattr(CompiledKernel, "lost_registers", lose)
    monkeypatch.setattr(CompiledKernel, "check_code", always(None))
    make = maker()
    object.__setattr__(make, "backend", "cuda")
    run = auto_scheduled(built(long_rows), make, sizes=None, target=DEFAULT)
    assert len(asked) == len(lost)
    assert run.kernels == (asked[taken],)


def test_equal_kernels_of_a_chain_have_arguments_of_their_own() -> None:
    def gated() -> list[tf.TensorView]:
        h = tensor("x", 64, 32)
        for name in "abcd":
            h = tf.cumsum(tf.softmax(h, 1), 0) @ tensor(name, 32, 32)
        return [h]

    fusion = built(gated)
    run = tf.compile(fusion, backend="sim")
    assert isinstance(run, Chain)
    assert len({id(link.run) for link in run.links}) < len(run.links), "there are equal kernels"
    args = [np.random.default_rng(k).standard_normal([int(n) for n in tv.shape]).astype(np.float32) for k, tv in enumerate(fusion.inputs)]
    for found, wanted in zip(run(*args), fusion.evaluate(*args), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)

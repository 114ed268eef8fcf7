"""The state of a lowering: options, and attributes that a step makes."""

import pytest

import taskfuse as tf
from taskfuse.lowering.state import LoweringOptions, State
from taskfuse.target import DEFAULT, H100
from tests.errors import text_of, untyped
from tests.lowering.stepped import NAMES, state_after


def fusion() -> tf.Fusion:
    with tf.Fusion("f") as made:
        made.add_output(tf.neg(tf.define_tensor([8], name="x")))
    return made


def test_a_target_is_an_object() -> None:
    assert LoweringOptions(target=H100).target is H100
    assert LoweringOptions().target is DEFAULT
    text = "target 'H100' is not supported: it is not a taskfuse.Target\nhelp: tf.compile(..., target=\"H100\") takes names"
    assert text_of(lambda: LoweringOptions(target=untyped("H100"))) == text


def test_nothing_is_there_before_its_step() -> None:
    state = State(fusion(), LoweringOptions())
    assert state.plan == state.buffers == state.mbarriers == state.counters == state.cursors == []
    for name in ("tree", "order", "ranges", "index_maps", "channels", "rings", "indexer", "statements", "endpoints", "kernel"):
        with pytest.raises(AttributeError, match=name):
            getattr(state, name)
    with pytest.raises(AttributeError, match="surprise"):
        setattr(state, "surprise", 1)  # noqa: B010 a type checker would see it


def test_states_share_nothing() -> None:
    one, other = (State(fusion(), LoweringOptions()) for _ in range(2))
    assert one.plan is not other.plan
    assert one.needs is not other.needs
    assert one.needs.maps is not other.needs.maps


@pytest.mark.parametrize(("step", "made"), [("ranges", "ranges"), ("memory", "index_maps"), ("rings", "statements"), ("emit", "kernel")])
def test_a_step_makes_what_it_ensures(step: str, made: str) -> None:
    before = state_after(fusion(), NAMES[NAMES.index(step) - 1])
    assert not hasattr(before, made)
    assert hasattr(state_after(fusion(), step), made)


def test_a_state_says_what_it_has() -> None:
    state = state_after(fusion(), "order")
    assert state.has("order")
    assert not state.has("index_maps")
    with pytest.raises(AttributeError, match="'index maps' is not an attribute of the state"):
        state.has("index maps")

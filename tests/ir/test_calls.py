"""What tensors call in the layers above: it is there, with the parameters that the protocols say."""

from inspect import isfunction, signature

import pytest

from taskfuse.ir.calls import OperatorCalls, SchedulingCalls, operators, scheduling


@pytest.mark.parametrize(("protocol", "bound"), [(OperatorCalls, operators()), (SchedulingCalls, scheduling())], ids=["operators", "scheduling"])
def test_every_call_of_a_protocol_is_bound(protocol: type, bound: object) -> None:
    calls = {name: f for name, f in vars(protocol).items() if isfunction(f) and not name.startswith("_")}
    assert calls
    for name, f in calls.items():
        wanted = [*signature(f).parameters][1:]
        assert [*signature(getattr(bound, name)).parameters] == wanted, name


def test_a_name_that_there_is_not_gets_a_hint() -> None:
    assert operators().instead("to") == ": write x.astype(dtype)"
    assert operators().instead("softmax") == ": write tf.softmax(x)"
    assert operators().instead("zzz") == ""

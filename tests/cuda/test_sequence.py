"""Several kernels as one call: plans and places are worked out once, then addresses are filled in."""

import sys
from typing import Any

import pytest

import taskfuse as tf
from taskfuse.cuda import arrays
from taskfuse.cuda.arrays import Kinds
from taskfuse.cuda.sequence import Routes
from taskfuse.errors import CudaError, TaskfuseError
from taskfuse.runtime import arrays as runtime_arrays
from taskfuse.runtime.chain import Chain
from tests.cuda.fakes import GPU, FakeDriver, FakeTensor, FakeTorch, aligned


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """A GPU, and torch."""
    found = FakeDriver(parameter_sizes=(8, 8))
    kinds = Kinds(found)
    monkeypatch.setitem(sys.modules, "torch", FakeTorch())
    for module in (arrays, runtime_arrays):
        monkeypatch.setattr(module, "kinds", lambda: kinds)
    return found


def chain(driver: FakeDriver) -> Chain:
    """x -> a -> b, c: three kernels, of which the second and the third read what the first makes; called once, since the first call learns nothing."""
    with tf.Fusion("three") as fusion:
        x = tf.define_tensor([64, 32], name="x")
        a = tf.exp(x)
        b, c = tf.neg(a), tf.sin(a)
        for tv in (b, c):
            fusion.add_output(tv)
    run = tf.compile(tf.segment(fusion, [[a], [b], [c]]), specialize=False)
    assert isinstance(run, Chain)
    run(tensor(64, 32))
    driver.launches.clear()
    return run


def tensor(*shape: int) -> FakeTensor:
    return FakeTensor(aligned(shape, "float32"))


def addresses(driver: FakeDriver, count: int = 3) -> list[tuple[int, int]]:
    """What the last kernels read and write."""
    return [(launch.parameter(0), launch.parameter(1)) for launch in driver.launches[-count:]]


def test_a_call_like_one_before_it_launches_the_same_on_its_own_arrays(driver: FakeDriver) -> None:
    run = chain(driver)
    run(tensor(64, 32))
    assert len(driver.launches) == 3
    before = [(launch.function, launch.grid, launch.block) for launch in driver.launches]
    x = tensor(64, 32)
    b, c = run(x)
    assert [(launch.function, launch.grid, launch.block) for launch in driver.launches[3:]] == before
    (read, between), (one, first), (two, second) = addresses(driver)
    assert read == x.data_ptr()
    assert one == two == between
    assert (first, second) == (b.data_ptr(), c.data_ptr())
    assert between not in (read, first, second)
    assert between % 256 == 0
    assert (b.shape, b.dtype) == ((64, 32), "float32")


def test_calls_learn_from_the_second_on_and_once(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[object] = []
    learn = Routes.learn

    def noted(routes: Routes, args: Any, given: Any, values: Any) -> None:
        learned.append(args)
        learn(routes, args, given, values)

    monkeypatch.setattr(Routes, "learn", noted)
    run = chain(driver)
    assert not learned
    for _ in range(3):
        run(tensor(64, 32))
        assert len(learned) == 1


def test_the_short_way_makes_one_array_for_all_that_goes_between(driver: FakeDriver) -> None:
    run = chain(driver)
    x = tensor(64, 32)
    run(x)
    torch = sys.modules["torch"]
    assert isinstance(torch, FakeTorch)
    before = len(torch.made)
    run(x)
    assert len(torch.made) - before == 3


def test_results_that_are_given_are_written_at_once(driver: FakeDriver) -> None:
    run = chain(driver)
    out = tensor(64, 32), tensor(64, 32)
    for count in (3, 6):  # the long way, and the short one
        found = run(tensor(64, 32), out=out)
        assert found[0] is out[0]
        assert len(driver.launches) == count
        assert [write for _, write in addresses(driver, 2)] == [array.data_ptr() for array in out]


def test_results_that_overlap_an_argument_go_the_long_way(driver: FakeDriver) -> None:
    run = chain(driver)
    x, other = tensor(64, 32), tensor(64, 32)
    out = tensor(64, 32), tensor(64, 32)
    run(x, out=out)
    first = len(driver.launches)
    run(x, out=(x, other))
    assert len(driver.launches) - first == 4  # what reads x has run before it is overwritten


def test_other_shapes_and_strides_are_worked_out_anew(driver: FakeDriver) -> None:
    run = chain(driver)
    first = tensor(64, 32)
    run(first)
    x = FakeTensor(aligned((32, 64), "float32").T)
    driver.parameter_sizes = (8,)
    run(x)
    assert driver.launches[3].parameter(0) == x.data_ptr() != first.data_ptr()
    with pytest.raises(TaskfuseError, match="the array has 33"):
        run(tensor(64, 33))
    with pytest.raises(TaskfuseError, match="arguments given"):
        run(x, x)


def test_with_another_current_gpu_a_call_goes_the_long_way(driver: FakeDriver) -> None:
    driver.devices = GPU, GPU._replace(ordinal=1, context=0xC1)
    run = chain(driver)
    x = tensor(64, 32)
    run(x)
    driver.current_context = 0xC1
    run(x)
    assert [launch.context for launch in driver.launches] == [GPU.context] * 6


def test_a_stream_that_is_given_is_used(driver: FakeDriver) -> None:
    run = chain(driver)
    x = tensor(64, 32)
    run(x)
    run(x, stream=77)
    assert {launch.stream for launch in driver.launches[3:]} == {77}


def test_workspace_and_maps_of_a_kernel_are_its_own(driver: FakeDriver) -> None:
    """A product by bulk copies: the descriptors follow the addresses of each call."""
    with tf.Fusion("product") as fusion:
        x, w = (tf.define_tensor([128, 128], dtype=tf.bfloat16, name=name) for name in "xw")
        y = tf.neg(x)
        z = y @ w
        fusion.add_output(z)
    rest = [tv for tv in fusion.tensors() if all(tv is not other for other in (x, w, y))]
    run = tf.compile(tf.segment(fusion, [[y], rest]), specialize=False, unsafe=True)
    driver.parameter_sizes = ()
    given: list[Any] = [FakeTensor(aligned((128, 128), "uint16"), dtype="bfloat16") for _ in range(4)]
    for _ in range(2):
        run(*given[:2])
    count = len(driver.log)
    run(*given[2:])
    moved = [entry[1] for entry in driver.log[count:] if entry[0] == "replace"]
    assert given[3].data_ptr() in moved


def test_a_call_launches_in_its_own_stream_on_its_own_arrays_whatever_the_call_before_did(driver: FakeDriver) -> None:
    run, torch = chain(driver), sys.modules["torch"]
    assert isinstance(torch, FakeTorch)
    inputs, outs = [tensor(64, 32) for _ in range(2)], [(tensor(64, 32), tensor(64, 32)) for _ in range(2)]
    for x, out in zip(inputs, outs, strict=True):
        run(x, out=out)
        run(x, out=out)
    for stream, k, m in ((11, 0, 0), (21, 0, 0), (21, 1, 0), (11, 1, 1), (11, 0, 0)):
        torch.streams[0] = stream
        run(inputs[k], out=outs[m])
        (read, between), (one, first), (two, second) = addresses(driver)
        assert (read, first, second) == (inputs[k].data_ptr(), *(array.data_ptr() for array in outs[m]))
        assert one == two == between
        assert [launch.stream for launch in driver.launches[-3:]] == [stream] * 3


def test_a_launch_that_fails_is_an_error_and_the_next_call_is_not(driver: FakeDriver) -> None:
    run, x = chain(driver), tensor(64, 32)
    run(x)
    run(x)
    driver.status = 700
    with pytest.raises(CudaError, match="launch of kernel 'three_0'"):
        run(x)
    driver.status = 0
    before = len(driver.launches)
    run(x)
    assert len(driver.launches) - before == 3

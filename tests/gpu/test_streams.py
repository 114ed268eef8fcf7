"""Streams and threads: the caller's current stream, an explicit one, several at once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from tests.gpu.device import same, to_numpy, to_torch
from tests.gpu.programs import exchanged, floats, load, scale

CYCLES = 50_000_000  # about 30 ms: what a delayed producer takes


def delayed(stream: Any, n: int) -> Any:
    """A tensor of ones that ``stream`` fills with twos, late."""
    x = torch.ones(n, 64, device="cuda")
    stream.wait_stream(torch.cuda.default_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
        x.fill_(2)
    return x


def test_the_current_stream_is_used() -> None:
    run = tf.compile(scale(), backend="cuda")
    run(torch.ones(8, 64, device="cuda"))
    stream = torch.cuda.Stream()
    x = delayed(stream, 8)
    with torch.cuda.stream(stream):
        (out,) = run(x)
    stream.synchronize()
    assert bool((out == 5).all())


def test_calls_do_not_wait_for_the_gpu() -> None:
    run = tf.compile(scale(), backend="cuda")
    run(torch.ones(8, 64, device="cuda"))
    stream = torch.cuda.Stream()
    x = delayed(stream, 8)
    with torch.cuda.stream(stream):
        run(x)
        assert not stream.query()
    stream.synchronize()


@pytest.mark.parametrize("form", ["handle", "object", "protocol"])
def test_an_explicit_stream_is_used(form: str) -> None:
    run = tf.compile(scale(), backend="cuda")
    stream = torch.cuda.Stream()
    handle = stream.cuda_stream

    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, handle

    x = delayed(stream, 8)
    out = torch.zeros(8, 64, device="cuda")
    torch.cuda.default_stream().synchronize()
    run(x, out=out, stream={"handle": handle, "object": stream, "protocol": Protocol()}[form])
    stream.synchronize()
    assert bool((out == 5).all())


def test_two_streams_at_once() -> None:
    """One executable in flight on two streams: neither launch takes the other's arguments or workspace."""
    run = tf.compile(exchanged(), backend="cuda")
    inputs = [to_torch(floats(m, 64, seed=m)) for m in (64, 37)]
    expected = [(x * 2).flip(0) + 1 for x in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    outs: list[Any] = []
    for _ in range(100):
        for stream, x in zip(streams, inputs, strict=True):
            with torch.cuda.stream(stream):
                outs.append(run(x)[0])
    torch.cuda.synchronize()
    for k, out in enumerate(outs):
        assert out.equal(expected[k % 2])


def test_many_threads_at_once() -> None:
    runs = [tf.compile(f, backend="cuda") for f in (scale(), exchanged(), load("ring"))]
    expects: list[Callable[[Any], Any]] = [lambda x: x * 2 + 1, lambda x: (x * 2).flip(0) + 1, lambda x: x * 2 + 1]

    def work(k: int) -> bool:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            right = True
            for i in range(40):
                which = (k + i) % 3
                x = torch.randn(1 + (7 * k + i) % 64, 32 if which == 2 else 64, device="cuda")
                (out,) = runs[which](x)
                right &= out.equal(expects[which](x))
        stream.synchronize()
        return right

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(48)))


def test_first_calls_of_many_threads() -> None:
    """The kernel is compiled and loaded while others ask for it."""
    run = tf.compile(scale(rank=3), backend="cuda")
    x = to_torch(floats(5, 6, 7))
    with ThreadPoolExecutor(16) as pool:
        jobs = [pool.submit(run, x) for _ in range(64)]
        outs = [job.result()[0] for job in jobs]
    torch.cuda.synchronize()
    assert all(same(to_numpy(out), to_numpy(x) * 2 + 1) for out in outs)


def test_the_context_of_the_caller_stays_current() -> None:
    tf.compile(scale(), backend="cuda")(torch.ones(8, 64, device="cuda"))
    before = torch.cuda.current_device()
    (out,) = tf.compile(scale(), backend="cuda")(torch.ones(8, 64, device=f"cuda:{torch.cuda.device_count() - 1}"))
    assert torch.cuda.current_device() == before
    assert out.device.index == torch.cuda.device_count() - 1
    assert bool((out == 3).all())


def test_tensors_of_two_devices_are_refused() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    run = tf.compile(scale(), backend="cuda")
    with pytest.raises(tf.errors.TaskfuseError, match="device"):
        run(torch.ones(8, 64, device="cuda:0"), out=torch.ones(8, 64, device="cuda:1"))


def test_devices_in_turn_and_at_once() -> None:
    """One executable on every device, from one thread and from many; what is current stays current."""
    count = torch.cuda.device_count()
    if count < 2:
        pytest.skip("needs two GPUs")
    run = tf.compile(scale(), backend="cuda")
    inputs = [torch.full((64, 64), float(k), device=f"cuda:{k}") for k in range(count)]

    def call(k: int) -> bool:
        (out,) = run(inputs[k % count])
        torch.cuda.synchronize(k % count)
        return out.device.index == k % count and bool((out == 2 * (k % count) + 1).all())

    before = torch.cuda.current_device()
    assert all(call(k) for k in range(4 * count))
    assert torch.cuda.current_device() == before
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(64)))

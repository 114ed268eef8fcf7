"""The line about long work: when it is written, where, and what is left of it."""

import io

import pytest

import taskfuse as tf
from taskfuse.options import Progress as Choice
from taskfuse.runtime import automatic
from taskfuse.runtime.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def said(stream: io.StringIO, times: list[float], choice: Choice = "auto") -> str:
    clock = Clock()
    with Progress("work", choice, stream, clock) as progress:
        for k, clock.now in enumerate(times):
            progress(f"{k} done")
    return stream.getvalue()


def test_short_work_says_nothing() -> None:
    assert said(Terminal(), [0.5, 1.0, 1.9]) == ""


def test_a_terminal_has_one_line_that_is_erased() -> None:
    assert said(Terminal(), [1.0, 2.0, 2.05, 2.2]) == "\r\x1b[Kwork: 1 done, 2 s\r\x1b[Kwork: 3 done, 2 s\r\x1b[K"


def test_a_file_has_lines_only_if_asked() -> None:
    assert said(io.StringIO(), [1.0, 2.5, 3.0, 5.0]) == ""
    assert said(io.StringIO(), [1.0, 2.5, 3.0, 5.0], "1") == "work: 1 done, 2 s\nwork: 3 done, 5 s\n"


def test_it_can_be_turned_off() -> None:
    assert said(Terminal(), [3.0, 4.0], "0") == ""


def test_an_error_leaves_no_line() -> None:
    stream, clock = Terminal(), Clock()

    def fail() -> None:
        with Progress("work", "auto", stream, clock) as progress:
            clock.now = 3.0
            progress("half")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert stream.getvalue() == "\r\x1b[Kwork: half, 3 s\r\x1b[K"


def test_a_stream_that_breaks_is_left_alone() -> None:
    stream, clock = Terminal(), Clock()
    with Progress("work", "auto", stream, clock) as progress:
        clock.now = 3.0
        progress("half")
        stream.close()
        clock.now = 4.0
        progress("all")


def test_compiling_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, clock = io.StringIO(), Clock()

    def ticking() -> float:
        clock.now += 1.5
        return clock.now

    def shown(what: str) -> Progress:
        return Progress(what, "1", stream, ticking)

    monkeypatch.setattr(automatic, "Progress", shown)
    with tf.Fusion("sums") as fusion:
        x = tf.define_tensor([64, 64])
        fusion.add_output(tf.sum(x, axis=0), tf.sum(tf.exp(x), axis=1))
    tf.compile(fusion, backend="sim", cache=False)
    lines = stream.getvalue().splitlines()
    assert lines
    assert all(line.startswith("tf.compile of 'sums': ") and "schedules tried" in line for line in lines)

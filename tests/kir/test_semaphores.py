"""Semaphores in kernel IR: text, rules, traversal, and the table of channels."""

from pathlib import Path

import pytest

from taskfuse.errors import ParseError, VerifyError
from taskfuse.ir.scalar import sym
from taskfuse.kir import Kernel, expressions, map_expressions, parse_kernel, walk
from taskfuse.kir.synchronization import Acquire, Release

TEXT = (Path(__file__).parent.parent / "kernels" / "blocks.kir").read_text(encoding="utf-8")


def changed(old: str, new: str) -> Kernel:
    assert old in TEXT
    return parse_kernel(TEXT.replace(old, new, 1))


def refusal(kernel: Kernel) -> str:
    with pytest.raises(VerifyError) as caught:
        kernel.check_ir()
    return str(caught.value).split("\n", 1)[0].removeprefix("kernel 'blocks': ")


def test_text_is_read_back() -> None:
    kernel = parse_kernel(TEXT)
    kernel.check_ir()
    assert parse_kernel(str(kernel)) == kernel
    assert "  SEMAPHORE full[2, 2] count 1, empty[2, 2] count 2\n" in str(kernel)
    assert kernel.is_cooperative
    symbolic = changed("SEMAPHORE full[2, 2] count 1", "SEMAPHORE full[N + 1, 2] count N")
    symbolic.check_ir()
    assert parse_kernel(str(symbolic)) == symbolic


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("full[2, 2] count 1", "full[2, 2] count 0", "a phase of semaphore 'full' takes 0 releases; it needs at least 1"),
        ("full[2, 2] count 1", "full[2, M] count 1", "semaphore 'full' uses 'M', which is not an extent"),
        ("full[2, 2] count 1", "w[2, 2] count 1, full[2, 2] count 1", "'w' is declared twice"),
        ("RELEASE full[blockIdx.x, p.slot]", "RELEASE full[p.slot]", "semaphore 'full' has 2 axes, the slot 1 indices"),
        ("RELEASE full[blockIdx.x, p.slot]", "RELEASE full[2, p.slot]", "index 2 is outside axis 0 of semaphore 'full', whose extent is 2"),
        ("phases p.phase", "phases -1", "a wait for -1 phases: their number is not negative"),
        ("phases p.phase", "phases q.phase", "cursor 'q' is not initialized here"),
    ],
)
def test_rules(old: str, new: str, message: str) -> None:
    assert refusal(changed(old, new)) == message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("RELEASE full[", "RELEASE other[", "there is no semaphore 'other'"),
        ("p.slot] phases", "p.slot] parity", "expected 'phases', found 'parity'"),
        ("full[2, 2] count 1", "full[2, 2]", "expected 'count', found ','"),
    ],
)
def test_what_the_parser_refuses(old: str, new: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        changed(old, new)


def test_expressions_are_seen_and_replaced() -> None:
    found = next(s for s in walk(parse_kernel(TEXT)) if isinstance(s, Acquire))
    assert list(map(str, expressions(found))) == ["blockIdx.x", "p.slot", "p.phase"]
    assert list(expressions(map_expressions(found, lambda e: e + sym("k")))) == [e + sym("k") for e in expressions(found)]
    release = next(s for s in walk(parse_kernel(TEXT)) if isinstance(s, Release))
    assert list(expressions(map_expressions(release, lambda e: e + 1))) == [e + 1 for e in expressions(release)]


def test_the_table_of_channels_has_rings_between_blocks() -> None:
    (channel,) = parse_kernel(TEXT).channels().channels
    assert (channel.full, channel.empty, channel.slots, channel.buffers) == ("full", "empty", 2, ("w",))
    assert (str(channel.filled), str(channel.read), channel.producers, channel.consumers) == ("1", "2", ("producer",), ("low", "high"))

"""Locations in the text of a kernel: printed on request, read back; those of a text are its own lines."""

from pathlib import Path

import pytest

import taskfuse as tf
from taskfuse.cli.load import load
from taskfuse.errors import ParseError, VerifyError
from taskfuse.kir import parse_kernel, to_text, walk
from taskfuse.location import Location, shown_path

TEXT = """KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  MBARRIER b[1]

IF threadIdx.x == 0:  @ "a.py":3:5  # t1
  INIT b[0] count 32  @ "a.py":4
ELSE:
  PASS
SYNC block  @ "a # \\"b\\".py":1:1  # barriers are initialized
FOR i in 0..N:  @ "a.py":7:2
  FOR threadIdx.x in TIDx{32}:  @ "a.py":8:3
    y[i] = copy(x[i])
"""


def where(kernel: tf.Kernel) -> list[str]:
    return [str(s.location) for s in walk(kernel)]


def test_read() -> None:
    found = parse_kernel(TEXT)
    wanted = [Location("a.py", 3, 4), Location("a.py", 4), Location('a # "b".py', 1, 0), Location("a.py", 7, 1), Location("a.py", 8, 2), None]
    assert [s.location for s in walk(found)] == wanted


def test_printed_on_request() -> None:
    found = parse_kernel(TEXT)
    assert found.text(locations=True) == TEXT.rstrip()
    assert "@" not in str(found)
    assert str(found) == "\n".join(line if "#" not in line else f"{line.split('  @')[0]}  #{line.split('  #')[1]}" for line in plain(TEXT))


def plain(text: str) -> list[str]:
    return [line if "  # " in line else line.split("  @")[0] for line in text.rstrip().split("\n")]


@pytest.mark.parametrize("name", ["gemm", "pipeline", "cat"])
def test_round_trip(name: str) -> None:
    for program in load(name):
        kernel = program.kernel()
        again = parse_kernel(kernel.text(witness=True, locations=True))
        assert again == kernel
        assert where(again) == where(kernel)
        exact = parse_kernel(to_text(kernel, path=str))
        assert [s.location for s in walk(exact)] == [s.location for s in walk(kernel)]


def test_paths_are_relative_where_that_is_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown_path(str(tmp_path / "a" / "b.py")) == str(Path("a", "b.py"))
    assert shown_path("/b.py") == "/b.py"
    assert shown_path("c.py") == "c.py"
    assert shown_path("<fusion text>") == "<fusion text>"
    assert str(Location(str(tmp_path / "b.py"), 3, 4)) == "b.py:3:5"
    assert str(Location("b.py", 3)) == "b.py:3"


def test_statements_of_a_file_come_from_its_lines() -> None:
    found = parse_kernel(TEXT, "some.kir")
    assert [s.location for s in walk(found)][-1] == Location("some.kir", 13, 4)
    assert next(s.location for s in walk(found)) == Location("a.py", 3, 4)
    bare = parse_kernel("\n".join(plain(str(parse_kernel(TEXT)))), "some.kir")
    assert [s.location for s in walk(bare)] == [Location("some.kir", line, column) for line, column in ((6, 0), (7, 2), (10, 0), (11, 0), (12, 2), (13, 4))]


def test_a_broken_rule_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "k.kir"
    path.write_text(str(parse_kernel(TEXT)).replace("x[i]", "x[j]"), encoding="utf-8")
    with pytest.raises(VerifyError) as caught:
        parse_kernel(path.read_text(encoding="utf-8"), str(path)).check_ir()
    number = next(k for k, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1) if "x[j]" in line)
    assert str(caught.value).split("\n")[-3:] == [f"  --> k.kir:{number}", "   |     y[i] = copy(x[j])", "   |     ^"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("@ a.py:3", r"expected a file in quotes, found 'a.py'"),
        ('@ "a.py"', r"expected ':', found end of line"),
        ('@ "a.py":b', r"expected an integer, found 'b'"),
        ('@ "a\\q.py":3', r"is not text"),
        ('@ "a.py":3:4:5', r"expected the end of the line, found ':'"),
    ],
)
def test_refused(bad: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        parse_kernel(TEXT.replace('@ "a.py":4', bad))

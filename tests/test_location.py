"""Source locations: the user's line, its text with a caret, and quotes that keep it."""

import copy
import linecache
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from taskfuse.location import Location, OneCall, Quote, caller, shown_path, with_snippets
from tests.lines import line_of


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A file of four lines."""
    path = tmp_path / "user.py"
    path.write_text("x = 1\n    y = f(x)\n\tz = g(é, y)\n\n", encoding="utf-8")
    linecache.checkcache(str(path))
    return str(path)


def test_line_and_column_are_shown_from_one(source: str) -> None:
    assert Location(source, 2, 8).place == "2:9"
    assert Location(source, 2).place == "2"
    assert str(Location("user.py", 7, 0)) == "user.py:7:1"
    assert Location("user.py", 7, 0) == Location("user.py", 7, 0) != Location("user.py", 7)


@pytest.mark.parametrize(
    ("line", "column", "shown"),
    [
        (1, 0, ["   | x = 1", "   | ^"]),
        (2, 8, ["   |     y = f(x)", "   |         ^"]),
        (2, None, ["   |     y = f(x)", "   |     ^"]),  # no column: the first that is not a blank
        (3, 5, ["   | \tz = g(é, y)", "   | \t    ^"]),  # a tab stays a tab
        (3, 11, ["   | \tz = g(é, y)", "   | \t         ^"]),  # Python counts bytes of UTF-8: the é has two
        (4, 0, []),  # nothing to see
        (9, 0, []),
    ],
)
def test_a_snippet(source: str, line: int, column: int | None, shown: list[str]) -> None:
    assert Location(source, line, column).snippet() == [f"  --> user.py:{line}", *shown]


def test_a_file_that_is_not_there_has_no_text() -> None:
    assert Location("<fusion text>", 3, 2).source == ""
    assert Location("<fusion text>", 3, 2).snippet() == ["  --> <fusion text>:3"]


def test_the_caller_is_the_users_line() -> None:
    found = caller()
    assert found is not None
    assert found.file == __file__
    assert found.line == line_of("found = caller()", test_the_caller_is_the_users_line)
    assert found.column == 12


def test_a_caller_behind_the_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of the package, and of dataclasses made for it, are passed over; code of the same generated file name elsewhere is not."""
    names: dict[str, Any] = {"caller": caller}
    for module, is_user in (("taskfuse.ir.fusion", False), ("dataclasses", False), ("elsewhere", True), ("taskfuser.x", True)):
        scope = names | {"__name__": module}
        exec(compile("def call():\n    return caller()\n", "<string>", "exec"), scope)
        found = cast("Callable[[], object]", scope["call"])()
        assert isinstance(found, Location)
        assert found.file == ("<string>" if is_user else __file__), module


def test_a_path_is_relative_where_that_is_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inside = str(tmp_path / "a" / "b.py")
    assert shown_path(inside) == os.path.join("a", "b.py")
    assert shown_path("/x.py") == "/x.py"  # ../../.. is longer
    assert shown_path("a/../b.py") == "a/../b.py"  # it is relative
    assert shown_path("<string>") == "<string>"


def test_a_quote_keeps_its_line() -> None:
    at = Location("user.py", 7)
    quote = Quote("y = f(x)", at)
    assert quote == "y = f(x)"
    for made, text in (("  thread 1: " + quote, "  thread 1: y = f(x)"), (quote + "!", "y = f(x)!"), (pickle.loads(pickle.dumps(quote)), "y = f(x)")):
        assert isinstance(made, Quote)
        assert made == text
        assert made.location is at or made.location == at
    assert copy.copy(quote).location is at


def test_notes_show_a_line_once(source: str) -> None:
    at = Location(source, 1, 0)
    notes = ["plain", "  " + Quote("one", at), Quote("nowhere", None), Quote("two", at)]
    assert list(with_snippets(notes)) == [
        "plain",
        "  one",
        "    --> user.py:1",
        "     | x = 1",
        "     | ^",
        "nowhere",
        "two",
        "  --> user.py:1",
    ]


def test_one_call_has_one_location() -> None:
    with OneCall():
        first = caller()
        assert caller() is first
        with OneCall():
            assert caller() is first
    assert first is not None
    assert first.file == __file__
    assert caller() != first

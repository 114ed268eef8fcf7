"""Tests mirror the package: ``tests/a/test_b.py`` tests ``taskfuse/a/b.py``, for every module with logic."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def has_logic(source: str) -> bool:
    """Whether a module has a function with a body: not declarations, tables and protocols alone."""
    tree = ast.parse(source)
    protocols = {n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and any("Protocol" in ast.unparse(b) for b in n.bases)}
    declared = {f for p in protocols for f in ast.walk(p)}
    return any(isinstance(n, ast.FunctionDef) and n not in declared for n in ast.walk(tree))


def modules() -> dict[str, Path]:
    """The modules, as ``a/b``."""
    paths = sorted(p for p in (ROOT / "taskfuse").rglob("*.py") if p.name not in ("__init__.py", "__main__.py"))
    return {p.relative_to(ROOT / "taskfuse").with_suffix("").as_posix(): p for p in paths}


def file_of(module: str) -> Path:
    folder, _, name = module.rpartition("/")
    return ROOT / "tests" / folder / f"test_{name}.py"


def test_every_module_has_its_tests() -> None:
    untested = [name for name, path in modules().items() if not file_of(name).exists() and has_logic(path.read_text(encoding="utf-8"))]
    assert untested == [], "write tests at the mirrored path"


def test_what_several_tests_use_is_no_test_module() -> None:
    """A test module may need what others have not: NVRTC, a GPU, a tool. Helpers need nothing that their readers do not."""
    found = {
        path.relative_to(ROOT).as_posix(): names
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if (names := re.findall(r"^ *(?:from|import) (tests(?:\.\w+)*\.test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    }
    assert found == {}


BARE = {"DeadlineError", "TooLarge", "TooLong", "LongRun", "Endless", "KeyError", "ZeroDivisionError", "IndexError", "PermissionError", "KeyboardInterrupt"}
"""Exceptions without a text of their own."""


def unreasoned(source: str) -> list[str]:
    """The errors that a test module expects without a look at their text."""
    found = re.findall(r"pytest\.raises\((\([\w., ]+\)|[\w.]+)\)[:,]", source)
    return [names for names in found if not {name.rpartition(".")[2] for name in re.findall(r"[\w.]+", names)} <= BARE]


def test_errors_are_expected_for_a_reason() -> None:
    """An error of the right class may be another one: a test gives the text, or looks at the error."""
    found = {p.relative_to(ROOT).as_posix(): names for p in sorted((ROOT / "tests").rglob("*.py")) if (names := unreasoned(p.read_text(encoding="utf-8")))}
    assert found == {}, "add match="


def test_an_error_without_a_reason_is_found() -> None:
    assert unreasoned("with pytest." + "raises(ShapeError):\n    f()\n    with pytest.raises((KeyError, tf.errors.TooLarge)):\n") == ["ShapeError"]
    assert unreasoned("with pytest.raises(ShapeError, match='x'):\n") == []


def test_one_name_is_one_class() -> None:
    """A word means one thing: no two modules have a class of one name."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "taskfuse").rglob("*.py")):
        for name in re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            found.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}, "give one of them a name that says what it is"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("X = 1\n", False),
        ("class A:\n    x: int\n", False),
        ("class A(Protocol):\n    def f(self) -> int: ...\n", False),
        ("def f() -> int:\n    return 1\n", True),
        ("class A:\n    def f(self) -> int:\n        return 1\n", True),
    ],
)
def test_what_counts_as_logic(source: str, expected: bool) -> None:
    assert has_logic(source) is expected

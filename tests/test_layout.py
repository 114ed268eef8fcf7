"""Tests mirror the package: ``tests/a/test_b.py`` tests ``taskfuse/a/b.py``. What has no such file is listed here with the tests that do reach it.

The list may only get shorter: a module that has its file, or is gone, must leave it.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ELSEWHERE: dict[str, str] = {
    "tests/testing/test_checks.py": """
        testing/automatic testing/graphs testing/options testing/partitions testing/rewrites testing/schedules testing/strategies testing/streams
    """,
    "tests/testing/test_minimize.py": """
        testing/measure testing/mechanisms
    """,
    "tests/testing/test_operators.py": """
        testing/outcomes
    """,
    "tests/testing/test_products.py": """
        testing/epilogues testing/operands testing/product_loops
    """,
    "tests/testing/test_value_faults.py": """
        testing/block_operators testing/definition_operators testing/instruction_subjects testing/lie_operators testing/meaning testing/tile_operators
        testing/value_edits testing/value_operators testing/value_subjects
    """,
}
"""Modules by the file, or the folder, whose tests reach them."""


def has_logic(source: str) -> bool:
    """Whether a module has a function with a body: not declarations, tables and protocols alone."""
    tree = ast.parse(source)
    protocols = {n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and any("Protocol" in ast.unparse(b) for b in n.bases)}
    declared = {f for p in protocols for f in ast.walk(p)}
    return any(isinstance(n, ast.FunctionDef) and n not in declared for n in ast.walk(tree))


@cache
def modules() -> list[str]:
    """Modules with logic, as ``a/b``."""
    paths = sorted(p for p in (ROOT / "taskfuse").rglob("*.py") if p.name not in ("__init__.py", "__main__.py"))
    return [p.relative_to(ROOT / "taskfuse").with_suffix("").as_posix() for p in paths if has_logic(p.read_text(encoding="utf-8"))]


def file_of(module: str) -> Path:
    folder, _, name = module.rpartition("/")
    return ROOT / "tests" / folder / f"test_{name}.py"


def listed() -> list[str]:
    return [name for names in ELSEWHERE.values() for name in names.split()]


def test_every_module_has_its_tests_or_is_listed() -> None:
    names = listed()
    missing = [name for name in modules() if not file_of(name).exists() and name not in names]
    assert not missing, "write tests at the mirrored path"


def test_the_list_says_what_is_so() -> None:
    names, known = listed(), modules()
    assert len(set(names)) == len(names)
    assert not [name for name in names if name not in known], "no such module with logic"
    assert not [name for name in names if file_of(name).exists()], "it has its tests: take it off the list"
    assert not [path for path in ELSEWHERE if not (ROOT / path).exists()]


def test_what_several_tests_use_is_no_test_module() -> None:
    """A test module may need what others have not: NVRTC, a GPU, a tool. Helpers need nothing that their readers do not."""
    found = {
        path.relative_to(ROOT).as_posix(): names
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if (names := re.findall(r"^ *(?:from|import) (tests(?:\.\w+)*\.test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    }
    assert found == {}


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

"""Docstrings name what is there: what "Attributes:" lists are attributes of the class, what "Args:" lists are parameters."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "taskfuse"
SECTION = re.compile(r"^(Attributes|Args):\n((?:    .*\n?|\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^    (\S[\w*, ]*): ", re.MULTILINE)


def listed(docstring: str) -> Iterator[tuple[str, str]]:
    """The sections of a docstring, with each name that they list."""
    for section, body in SECTION.findall(docstring):
        for names in ENTRY.findall(body):
            yield from ((section, name.strip().lstrip("*")) for name in names.split(","))


def attributes(node: ast.ClassDef) -> set[str]:
    """What a class or its methods assign, declare or define."""
    found = {n.name for n in ast.walk(node) if isinstance(n, ast.FunctionDef)}
    for n in ast.walk(node):
        targets = n.targets if isinstance(n, ast.Assign) else [n.target] if isinstance(n, ast.AnnAssign) else []
        for target in (t for given in targets for t in ast.walk(given)):
            found |= {target.id} if isinstance(target, ast.Name) else {target.attr} if isinstance(target, ast.Attribute) else set()
    return found


def parameters(node: ast.FunctionDef | ast.ClassDef) -> set[str]:
    """The parameters of a function, or of the constructors that a class defines; the fields of a class without one."""
    if isinstance(node, ast.ClassDef):
        made = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name in ("__init__", "__new__")]
        return set[str]().union(*map(parameters, made)) if made else attributes(node)
    a = node.args
    return {x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if x is not None}


def documented(body: list[ast.stmt]) -> Iterator[tuple[ast.FunctionDef | ast.ClassDef, str]]:
    """The functions and classes of a module, and methods, with their docstrings."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and (docstring := ast.get_docstring(node)) is not None:
            yield node, docstring
        if isinstance(node, ast.ClassDef):
            yield from documented(node.body)


def strangers(source: str) -> list[str]:
    """Names in docstrings that mean nothing there. A class that inherits may have its attributes from elsewhere."""
    found: list[str] = []
    for node, docstring in documented(ast.parse(source).body):
        for section, name in listed(docstring):
            is_class = isinstance(node, ast.ClassDef)
            inherits = is_class and any(ast.unparse(b).split("[")[0] not in ("Generic", "Protocol", "NamedTuple") for b in node.bases)
            if not inherits and name not in (attributes(node) if is_class and section == "Attributes" else parameters(node)):
                found.append(f"{node.name}: {name}")
    return found


def test_names_in_docstrings_are_there() -> None:
    sources = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}
    found = {name: strangers(s) for name, s in sources.items() if "    Args:\n" in s or "    Attributes:\n" in s}
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('def f(a, *b, c=1):\n    """F.\n\n    Args:\n        a: one.\n        b, c: two,\n            not d: three.\n    """', []),
        ('def f(a):\n    """F.\n\n    Args:\n        b: gone.\n\n    Raises:\n        Error: c.\n    """', ["f: b"]),
        ('class A:\n    """A.\n\n    Attributes:\n        x, y: two.\n    """\n    x: int\n    def __init__(self):\n        self.z = 1', ["A: y"]),
        ('class A:\n    """A.\n\n    Args:\n        x: one.\n    """\n    def __init__(self, y): ...', ["A: x"]),
        ('class A(B):\n    """A.\n\n    Attributes:\n        x: of B.\n    """', []),
    ],
)
def test_what_counts_as_a_stranger(source: str, expected: list[str]) -> None:
    assert strangers(source) == expected

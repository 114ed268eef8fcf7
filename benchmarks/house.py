"""How the package is cut into modules: sizes, circles of imports, names of classes, tests, and how many modules name a statement of kernel IR.

``python benchmarks/house.py [COMMIT ...]`` prints a row for each figure, a column for each commit and one for the working tree. Circles count imports for
type annotations too. The fan-out of a statement is the number of modules that define its class or import it; those of the proof and of ``testing``, each of
which has rules about a few statements, count in the first row alone.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import networkx as nx

ROOT: Final = Path(__file__).parents[1]
SHORT, LONG = 60, 450
STATEMENTS: Final = ("taskfuse/kir/nodes.py", "taskfuse/kir/synchronization.py", "taskfuse/kir/products.py")

RULES: Final = ("taskfuse/check/", "taskfuse/testing/")

Sources = Mapping[str, str]
"""Path below the root to text, of all Python files of the package and of the tests."""


def at(commit: str) -> Sources:
    """The files of a commit."""
    folders = subprocess.run(["git", "ls-tree", "--name-only", commit, "taskfuse", "tests"], cwd=ROOT, capture_output=True, text=True, check=True)
    archive = subprocess.run(["git", "archive", commit, *folders.stdout.split()], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        opened = ((member.name, files.extractfile(member)) for member in files if member.name.endswith(".py"))
        return {name: file.read().decode() for name, file in opened if file is not None}


def here() -> Sources:
    """The files of the working tree."""
    paths = (path for folder in ("taskfuse", "tests") for path in sorted((ROOT / folder).rglob("*.py")))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


def circles(trees: Mapping[str, ast.Module]) -> list[int]:
    """The number of modules in each circle of imports, the largest first."""
    modules = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): tree for path, tree in trees.items()}
    graph: nx.DiGraph[str] = nx.DiGraph()
    for module, tree in modules.items():
        for node in statements(tree):
            match node:
                case ast.Import(names=names):
                    graph.add_edges_from((module, alias.name) for alias in names)
                case ast.ImportFrom(module=str(package), names=names):
                    found = (f"{package}.{alias.name}" for alias in names)
                    graph.add_edges_from((module, name if name in modules else package) for name in found)
                case _:
                    pass
    return sorted((len(c) for c in nx.strongly_connected_components(graph) if len(c) > 1), reverse=True)


def has_logic(tree: ast.Module) -> bool:
    """Whether a module has a function with a body: not declarations, tables and protocols alone."""
    found = [*statements(tree)]
    protocols = [n for n in found if isinstance(n, ast.ClassDef) and any("Protocol" in ast.unparse(b) for b in n.bases)]
    declared = {f for p in protocols for f in statements(p)}
    return any(isinstance(n, ast.FunctionDef) and n not in declared for n in found)


def statements_named(path: str, tree: ast.Module) -> set[str]:
    """What a module imports from kernel IR; where statements are defined, their classes, too."""
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("taskfuse.kir") for a in n.names}
    return imported | {n.name for n in tree.body if isinstance(n, ast.ClassDef) and path in STATEMENTS}


def figures(sources: Sources) -> dict[str, str]:
    """The name of each figure, and what it is."""
    package = {path: text for path, text in sources.items() if path.startswith("taskfuse/")}
    trees = {path: ast.parse(text) for path, text in package.items()}
    lines = {path: text.count("\n") for path, text in package.items() if not path.endswith("__init__.py")}
    largest = max(lines, key=lambda path: lines[path])
    classes = Counter(n.name for tree in trees.values() for n in tree.body if isinstance(n, ast.ClassDef))
    logic = [path for path in lines if not path.endswith("__main__.py") and has_logic(trees[path])]
    own = [path for path in logic if re.sub(r"^taskfuse/(.*/)?(\w+\.py)$", r"tests/\1test_\2", path) in sources]
    nodes = [n.name for path in STATEMENTS if path in trees for n in trees[path].body if isinstance(n, ast.ClassDef) and n.decorator_list]
    named = {path: statements_named(path, tree) for path, tree in trees.items()}
    fans = {name: sum(name in found for found in named.values()) for name in nodes}
    own_fans = [sum(name in found for path, found in named.items() if not path.startswith(RULES)) for name in nodes]
    widest = max(fans, key=lambda name: fans[name])
    return {
        "modules (without `__init__`)": f"{len(lines):,}",
        "lines": f"{sum(lines.values()):,}",
        "median module": f"{statistics.median(lines.values()):.0f} lines",
        "largest module": f"{lines[largest]} lines, `{largest}`",
        f"modules below {SHORT} lines": str(sum(n < SHORT for n in lines.values())),
        f"modules above {LONG} lines": str(sum(n > LONG for n in lines.values())),
        "circles of imports (modules)": ", ".join(map(str, circles(trees))) or "none",
        "names of several classes": str(sum(n > 1 for n in classes.values())),
        "modules with logic and no test file of their own": f"{len(logic) - len(own)} of {len(logic)}",
        "modules that name a statement, median": f"{statistics.median(fans.values()):.0f}",
        "the same without proof and testing": f"{statistics.median(own_fans):.0f}",
        "modules that name a statement, most": f"{fans[widest]}, `{widest}`",
    }


def main() -> None:
    """The table."""
    columns = {**{commit: figures(at(commit)) for commit in sys.argv[1:]}, "now": figures(here())}
    rows = next(iter(columns.values()))
    print(f"| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {row} | {' | '.join(column[row] for column in columns.values())} |")


if __name__ == "__main__":
    main()

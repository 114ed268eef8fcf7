"""Imports go downward through the layers, and the modules' imports have no cycle.

The imports are read from the source, those inside functions too. Those under ``if TYPE_CHECKING`` do not run: they go downward like all others, but may
close a cycle among modules whose classes refer to each other, each of which is listed here.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parent.parent

LAYERS = {
    "errors": 0,
    "deadline": 0,
    "collector": 0,
    "location": 0,
    "options": 0,
    "free_cores": 0,
    "dtypes": 0,
    "dump": 0,
    "svg": 0,
    "figures": 0,
    "target": 0,
    "version": 0,
    "ir": 1,
    "ops": 1,
    "schedule": 2,
    "reports": 2,
    "kir": 3,
    "lowering": 4,
    "passes": 4,
    "sim": 5,
    "check": 5,
    "count": 5,
    "cuda": 5,
    "schedulers": 6,
    "tiles": 6,
    "torch": 6,
    "torch_backend": 6,
    "runtime": 6,
    "testing": 6,
    "cli": 6,
    "__main__": 6,
    "": 6,  # the package itself, taskfuse/__init__.py
}

# Four readers of kernel IR, each of which must be right without the others.
INDEPENDENT = {"sim", "check", "count", "cuda"}

# Modules whose classes refer to each other: a cycle that type annotations close lies inside one of these.
TOGETHER = tuple(
    frozenset(f"taskfuse.{package}.{module}" for module in modules.split())
    for package, modules in (
        ("ir", "array_methods calls expr fusion task_tree tasks tensor"),  # a tensor has a definition, which reads tensors; both a fusion
        ("sim", "block engines observer"),  # a block has engines, whose operations are of blocks; an observer is told of both
    )
)

# Packages that everybody else imports by their __init__ alone.
FACADES = ("taskfuse.ir.scalar",)


def sources(root: Path) -> dict[str, str]:
    """Module name to source text, of every module of the package."""
    paths = {path.relative_to(root).with_suffix("").parts: path for path in sorted((root / "taskfuse").rglob("*.py"))}
    return {".".join(parts[:-1] if parts[-1] == "__init__" else parts): path.read_text(encoding="utf-8") for parts, path in paths.items()}


parsed = cache(ast.parse)


def statements(node: ast.AST, types: bool) -> Iterator[ast.AST]:
    """All statements below ``node``; the bodies of ``if TYPE_CHECKING`` with ``types`` alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue  # no expression holds a statement
        yield child
        if not types and isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for statement in child.orelse:
                yield statement
                yield from statements(statement, types)
        else:
            yield from statements(child, types)


def imports(modules: Mapping[str, str], types: bool) -> "nx.DiGraph[str]":
    """The graph of the modules: an edge from each to those that it imports. ``from a import b`` means the module a.b if there is one, else a.

    Args:
        types: imports for type annotations alone count, too.
    """
    graph: nx.DiGraph[str] = nx.DiGraph()
    for module, source in modules.items():
        graph.add_node(module)
        for node in statements(parsed(source), types):
            match node:
                case ast.Import(names=names):
                    targets = [alias.name for alias in names]
                case ast.ImportFrom(module=str(package), names=names):
                    targets = [name if (name := f"{package}.{alias.name}") in modules else package for alias in names]
                case _:
                    continue
            graph.add_edges_from((module, target) for target in targets if target.split(".")[0] == "taskfuse")
    return graph


def part(module: str) -> str:
    """The row of LAYERS that a module belongs to: ``taskfuse.ir.scalar.expr`` to ``ir``."""
    return [*module.split("."), ""][1]


def violations(modules: Mapping[str, str]) -> list[str]:
    """One line for each import, or cycle of imports, that breaks a rule of this page."""
    graph = imports(modules, types=True)
    found = [f"{module} is in no layer: add it to LAYERS" for module in modules if part(module) not in LAYERS]
    for module, target in graph.edges:
        here, there = part(module), part(target)
        if target not in modules:
            found.append(f"{module} imports {target}, which does not exist")
        elif here in LAYERS and there in LAYERS and LAYERS[there] > LAYERS[here]:
            found.append(f"{module} (layer {LAYERS[here]}) imports {target} (layer {LAYERS[there]})")
        elif here != there and {here, there} <= INDEPENDENT:
            found.append(f"{module} imports {target}: {here} and {there} are independent")
        for facade in FACADES:
            if target.startswith(facade + ".") and not f"{module}.".startswith(facade + "."):
                found.append(f"{module} imports {target}: import from {facade}")
    cyclic: set[str] = set()
    for what, allowed, edges in (("import cycle", (), imports(modules, types=False)), ("cycle of types", TOGETHER, graph)):
        for component in nx.strongly_connected_components(edges):
            if len(component) > 1 and not cyclic & component and not any(component <= together for together in allowed):
                path = [min(component)]
                while len(set(path)) == len(path):
                    path.append(min(component & {*edges.successors(path[-1])}))
                found.append(f"{what}: {' -> '.join(path[path.index(path[-1]) :])}")
                cyclic |= component
    return found


def test_cycles_of_types_are_there() -> None:
    """What is listed is a cycle, and as small as it can be: the list may only get shorter."""
    cycles = [frozenset(c) for c in nx.strongly_connected_components(imports(sources(ROOT), types=True)) if len(c) > 1]
    assert sorted(map(sorted, cycles)) == sorted(map(sorted, TOGETHER))


def test_imports_of_the_package() -> None:
    modules = sources(ROOT)
    assert modules.keys() >= {"taskfuse", "taskfuse.errors", "taskfuse.ir.fusion"}
    assert violations(modules) == []


PARTS = ("errors", "ir", "ir.scalar", "ir.scalar.expr", "ir.fusion", "kir", "sim", "check")
EMPTY = {"taskfuse": ""} | {f"taskfuse.{name}": "" for name in PARTS}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("taskfuse.kir", "from taskfuse.ir import fusion\nimport taskfuse.errors"),
        ("taskfuse.ir.expr", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from taskfuse.ir.fusion import Fusion"),
        ("taskfuse.ir.scalar", "from taskfuse.ir.scalar.expr import Expr"),
        ("taskfuse", "from taskfuse.sim import simulate"),
        ("taskfuse.sim", "import taskfusextra\nimport numpy"),
    ],
)
def test_allowed(module: str, source: str) -> None:
    assert violations(EMPTY | {module: source}) == []


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"taskfuse.ir.fusion": "from taskfuse import kir"}, "taskfuse.ir.fusion (layer 1) imports taskfuse.kir (layer 3)"),
        ({"taskfuse.errors": "def late():\n    import taskfuse.ir"}, "taskfuse.errors (layer 0) imports taskfuse.ir (layer 1)"),
        ({"taskfuse.sim": "from taskfuse import lower"}, "taskfuse.sim (layer 5) imports taskfuse (layer 6)"),
        ({"taskfuse.sim": "from taskfuse.check import prove"}, "taskfuse.sim imports taskfuse.check: sim and check are independent"),
        ({"taskfuse.kir": "from taskfuse.ir.scalar.expr import Expr"}, "taskfuse.kir imports taskfuse.ir.scalar.expr: import from taskfuse.ir.scalar"),
        ({"taskfuse.kir": "import taskfuse.gone"}, "taskfuse.kir imports taskfuse.gone, which does not exist"),
        ({"taskfuse.extra": ""}, "taskfuse.extra is in no layer: add it to LAYERS"),
        (
            {"taskfuse.ir": "from taskfuse.ir.fusion import Fusion", "taskfuse.ir.fusion": "if not TYPE_CHECKING:\n    from taskfuse.ir import Fusion"},
            "import cycle: taskfuse.ir -> taskfuse.ir.fusion -> taskfuse.ir",
        ),
        (
            {"taskfuse.ir.fusion": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from taskfuse.sim import Interleaving"},
            "taskfuse.ir.fusion (layer 1) imports taskfuse.sim (layer 5)",
        ),
        (
            {"taskfuse.sim": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from taskfuse.check import Certificate"},
            "taskfuse.sim imports taskfuse.check: sim and check are independent",
        ),
        (
            {"taskfuse.ir": "if TYPE_CHECKING:\n    import taskfuse.errors\nelse:\n    import taskfuse.ir.fusion", "taskfuse.ir.fusion": "import taskfuse.ir"},
            "import cycle: taskfuse.ir -> taskfuse.ir.fusion -> taskfuse.ir",
        ),
        (
            {"taskfuse.ir": "if TYPE_CHECKING:\n    from taskfuse.ir.fusion import Fusion", "taskfuse.ir.fusion": "import taskfuse.ir"},
            "cycle of types: taskfuse.ir -> taskfuse.ir.fusion -> taskfuse.ir",
        ),
    ],
)
def test_refused(changed: dict[str, str], expected: str) -> None:
    assert violations(EMPTY | changed) == [expected]

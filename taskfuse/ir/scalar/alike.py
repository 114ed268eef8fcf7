"""Questions that differ only in the numbers in the names of symbols, such as indices of repeated loops: each is asked once.

Symbols with one name before their numbers are counted from 0 on, in the order of the numbers: the order of terms stays, so all rules and searches do the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from taskfuse.ir.scalar.expr import MEMORY, Expr, Sym, intern
from taskfuse.ir.scalar.facts import Facts
from taskfuse.ir.scalar.memory import remembered
from taskfuse.ir.scalar.transform import substitute

NUMBERED: Final = re.compile(r"([^0-9]+)([0-9]+)(.*)")


def counted(e: Expr, facts: Facts) -> tuple[Expr, Facts, Mapping[str, Expr]]:
    """An expression and facts about its symbols with other numbers in their names, and what these symbols are."""
    there, back = _counted(facts.symbols | e.free)
    renamed = facts.renamed(there) if there else None
    return (e, facts, {}) if renamed is None else (substitute(e, there), renamed, back)


@remembered(MEMORY)
def _counted(names: frozenset[str]) -> tuple[Mapping[str, Expr], Mapping[str, Expr]]:
    """Symbols by name, with other numbers; and the other way round."""
    found: dict[str, list[tuple[int, str]]] = {}
    mixed: set[str] = set()
    for name in names:
        match = NUMBERED.fullmatch(name)
        if match is not None:
            found.setdefault(match[1], []).append((int(match[2]), name))
            if match[3]:
                mixed.add(match[1])
    pairs = [(name, f"{start}{k}") for start, some in found.items() if start not in mixed for k, (_, name) in enumerate(sorted(some))]
    if all(a == b for a, b in pairs):
        return {}, {}
    return {a: intern(Sym, b) for a, b in pairs}, {b: intern(Sym, a) for a, b in pairs}

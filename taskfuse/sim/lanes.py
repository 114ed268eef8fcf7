"""Sets of threads of a block, and integer expressions evaluated on them.

Uniform values (loop variables, cursors, block indices, extents) are Python integers in an agent's environment; only ``threadIdx`` differs
from lane to lane. So a value that depends on ``threadIdx`` is a function of the set of lanes and of the uniform symbols in it, and is
computed once for each of their values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from itertools import count
from operator import itemgetter
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from taskfuse.ir.scalar import Const, Expr, Sym, compile_expr
from taskfuse.sim.fault import Fault

Ints = npt.NDArray[np.int64]
Env = dict[str, Any]
Key = Callable[[Env], Hashable]
THREAD_SYMBOLS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
_CACHE_LIMIT = 1 << 14
_numbers = count()


class Lanes:
    """A nonempty set of threads of a block.

    Attributes:
        ids: linear thread ids, ascending.
        where: ``ids`` as a slice if they are consecutive.
        index: ``threadIdx`` symbols: an integer if all lanes agree, else one value per lane.
        cache: results on these lanes, by the number of the computation and the uniform values that it used.
    """

    __slots__ = ("cache", "count", "first", "ids", "index", "where")

    def __init__(self, ids: Ints, dims: tuple[int, int, int]) -> None:
        self.ids = ids
        self.count = len(ids)
        self.first = int(ids[0])
        last = int(ids[-1])
        self.where: slice | Ints = slice(self.first, last + 1) if last - self.first + 1 == self.count else ids
        x, y, _ = dims
        values = (ids % x, ids // x % y, ids // (x * y))
        self.index: Env = {name: _uniform(v) for name, v in zip(THREAD_SYMBOLS, values, strict=True)}
        self.cache: dict[Hashable, Any] = {}

    def has_whole_units(self, unit: int) -> bool:
        """True if the lanes are whole warps (or other units of ``unit`` threads)."""
        key = ("whole", unit)
        found = self.cache.get(key)
        if found is None:
            found = bool((np.unique(self.ids // unit, return_counts=True)[1] == unit).all())
            self.remember(key, found)
        return found

    def remember(self, key: Hashable, value: Any) -> None:
        """Add to the cache."""
        if len(self.cache) > _CACHE_LIMIT:
            self.cache.clear()
        self.cache[key] = value


def _uniform(values: Ints) -> int | Ints:
    return int(values[0]) if values[0] == values[-1] and bool((values == values[0]).all()) else values


class LaneTable:
    """The lane sets of a launch, each made once."""

    __slots__ = ("_known", "dims", "threads")

    def __init__(self, dims: tuple[int, int, int]) -> None:
        self.dims = dims
        self.threads = dims[0] * dims[1] * dims[2]
        self._known: dict[bytes, Lanes] = {}

    def get(self, ids: Ints) -> Lanes:
        """The lanes with these ids (ascending)."""
        key = ids.tobytes()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Lanes(ids, self.dims)
        return found

    def span(self, first: int, end: int) -> Lanes:
        """The lanes ``first`` to ``end - 1``."""
        return self.get(np.arange(first, end, dtype=np.int64))

    def union(self, parts: list[Lanes]) -> Lanes:
        """All lanes of disjoint parts."""
        return self.get(np.sort(np.concatenate([p.ids for p in parts])))

    def coordinates(self, thread: int) -> tuple[int, int, int]:
        """``threadIdx`` of a linear id."""
        x, y, _ = self.dims
        return thread % x, thread // x % y, thread // (x * y)


def next_number() -> int:
    """A number for a computation whose results are cached on lanes."""
    return next(_numbers)


def key_of(names: tuple[str, ...]) -> Key:
    """A function that returns the values of symbols in an environment, as a key."""
    return cast(Key, itemgetter(*names)) if names else _no_key


def _no_key(env: Env) -> Hashable:
    return None


class CompiledExpr:
    """A compiled integer expression.

    Attributes:
        names: its symbols, sorted.
        varying: those that change while the kernel runs and are equal for all lanes.
        per_lane: true if it depends on ``threadIdx``.
    """

    __slots__ = ("constant", "expr", "function", "key", "names", "number", "per_lane", "symbol", "varying")

    def __init__(self, expr: Expr, fixed: frozenset[str]) -> None:
        self.expr = expr
        self.names = tuple(sorted(expr.free))
        self.per_lane = any(n in THREAD_SYMBOLS for n in self.names)
        self.varying = tuple(n for n in self.names if n not in fixed and n not in THREAD_SYMBOLS)
        self.key = key_of(self.varying)
        self.function = compile_expr(expr, self.names)
        self.constant = expr.value if isinstance(expr, Const) else None
        self.symbol = expr.name if isinstance(expr, Sym) else None
        self.number = next_number()

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        """The value where ``env`` has all symbols."""
        try:
            return self.function(*[env[n] for n in self.names])
        except (ZeroDivisionError, IndexError) as e:
            raise Fault(f"the expression {self.expr} has no value: {e}") from None

    def uniform(self, env: Env) -> int:
        """The value of an expression without ``threadIdx``."""
        if self.constant is not None:
            return self.constant
        return env[self.symbol] if self.symbol is not None else int(self.evaluate(env))

    def at(self, lanes: Lanes, env: Env) -> Any:
        """The value on lanes: an integer if all agree, else an array with one value per lane."""
        if not self.per_lane:
            return self.uniform(env)
        if self.symbol is not None:
            return lanes.index[self.symbol]
        key = (self.number, self.key(env))
        found = lanes.cache.get(key)
        if found is None:
            value: Any = self.evaluate({**env, **lanes.index})
            found = int(value) if isinstance(value, int) else _uniform(value)
            lanes.remember(key, found)
        return found

    def value(self, lanes: Lanes, env: Env) -> int:
        """The value on lanes that agree, as :func:`groups` returns them."""
        found = self.at(lanes, env)
        return found if isinstance(found, int) else int(found[0])

    def split(self, lanes: Lanes, env: Env, table: LaneTable) -> tuple[Lanes | None, Lanes | None]:
        """The lanes where a condition holds, and the others."""
        if not self.per_lane:
            return (lanes, None) if self.uniform(env) else (None, lanes)
        key = (self.number, self.key(env), "split")
        found = lanes.cache.get(key)
        if found is None:
            value = self.at(lanes, env)
            if isinstance(value, int):
                found = (lanes, None) if value else (None, lanes)
            else:
                mask = value != 0
                found = (table.get(lanes.ids[mask]), table.get(lanes.ids[~mask]))
            lanes.remember(key, found)
        return found


def groups(codes: tuple[CompiledExpr, ...], lanes: Lanes, env: Env, table: LaneTable) -> list[Lanes]:
    """The lanes in sets on which every expression has one value."""
    parts = [lanes]
    for code in codes:
        refined: list[Lanes] = []
        for part in parts:
            value = code.at(part, env)
            if isinstance(value, int):
                refined.append(part)
            else:
                refined += [table.get(part.ids[value == v]) for v in np.unique(value)]
        parts = refined
    return parts

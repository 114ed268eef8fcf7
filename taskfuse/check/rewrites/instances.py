"""The original and the rewritten definitions, computed at small extents: a difference refutes, and equal results are evidence.

Where extents are constants and large, some elements are computed alone (:mod:`taskfuse.check.rewrites.sampled`).

Modular words show a difference of any kind. Where they differ by a law of the real numbers that words do not have (exponentials and division have
theirs), results are compared in float64, without the roundings to narrower types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from taskfuse.check.drawn_launches import drawn_extents
from taskfuse.check.refuted import TooLarge
from taskfuse.check.rewrites.sampled import Inputs, SampledElements
from taskfuse.dtypes import DType
from taskfuse.ir.scalar import evaluate
from taskfuse.ir.values import MODULAR, Array, Native, Scalar, Values
from taskfuse.kir import Kernel
from taskfuse.kir.meaning import meaning

LAUNCHES = 4
"""Sets of extents that are tried, or of inputs if the extents are constants."""
MOST = 1 << 19
"""The most points of all iteration spaces at some extents."""
ELEMENTS = 4
"""Elements of an output that are computed separately."""
WORK = 1 << 19
"""The most points that these elements may need on each side."""
FIRST_WORK = 5 << 20
"""The same of the first element of an output, if it needs more than is left of that."""
TOLERANCE = 1e-7
"""The largest difference in float64, relative to the largest number, attributed to another order of rounding."""


class Wide(Native):
    """Floats of all types as float64, without rounding."""

    name = "wide"

    def storage(self, dtype: DType) -> np.dtype[Any]:
        return np.dtype(np.float64) if dtype.is_float else dtype.numpy

    def encode(self, array: npt.ArrayLike, dtype: DType) -> Array:
        return np.asarray(array, self.storage(dtype))

    def literal(self, value: Scalar, dtype: DType) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(value).astype(self.storage(dtype))

    def cast(self, array: Array, source: DType, target: DType) -> Array:
        return array if source.is_float and target.is_float else super().cast(array, source, target).astype(self.storage(target))


WIDE: Values = Wide()


@dataclass(frozen=True, slots=True)
class Instance:
    """The result of some launches.

    Attributes:
        output: an output with a differing element; ``None`` if there is none.
        compared: the outputs of which there is evidence: elements that have been compared, all of them if there are none at any extents.
    """

    output: str | None
    reason: str
    notes: tuple[str, ...] = ()
    compared: frozenset[str] = frozenset()


def instance(kernel: Kernel, outputs: Sequence[str]) -> Instance:
    """Compare some outputs at small extents, or a few of their elements if the extents are constants and large."""
    at: list[str] = []
    every, seen = set[str](), set[str]()
    is_small = False
    for draw, extents in enumerate(_small(kernel)):
        is_small = True
        there = _with_elements(kernel, outputs, extents)
        found = compared(kernel, outputs, extents, draw) if there else None
        if found is None:
            continue
        if isinstance(found, Instance):
            return found
        every.add(found)
        seen.update(there)
        at.append(", ".join(f"{n} = {v}" for n, v in extents.items()))
        if len(at) == LAUNCHES:
            break
    if not is_small:
        return _sampled(kernel, outputs)
    if not at:
        return Instance(None, "it cannot be computed")
    where = f" at {'; '.join(at)}" if any(at) else ""
    return Instance(None, f"computed in {' and '.join(sorted(every))}, it is{where}", compared=frozenset(seen))


def _with_elements(kernel: Kernel, outputs: Sequence[str], extents: Mapping[str, int]) -> list[str]:
    """Those of some outputs that have an element at some extents."""
    shapes = {d.tensor: d.shape for d in kernel.definitions}
    return [name for name in outputs if all(evaluate(n, extents) > 0 for n in shapes[name])]


def _small(kernel: Kernel) -> Iterator[dict[str, int]]:
    for extents in drawn_extents(kernel):
        sizes = (prod(int(evaluate(n, extents)) for n in d.space) for d in (*kernel.definitions, *kernel.written))
        try:
            points = sum(sizes)
        except (ZeroDivisionError, IndexError):
            continue
        if points <= MOST:
            yield from [extents] * (1 if extents else min(LAUNCHES, MOST // max(points, 1)))


def _sampled(kernel: Kernel, outputs: Sequence[str]) -> Instance:
    """Compare single elements, each with all that it needs."""
    extents = next(drawn_extents(kernel), None)
    if extents is None:
        return Instance(None, "no extents are as declared")
    inputs, chance = Inputs(kernel, extents), np.random.default_rng(0)
    shapes = {d.tensor: tuple(int(evaluate(n, extents)) for n in d.shape) for d in kernel.definitions}
    filled = [name for name in outputs if 0 not in shapes[name]]
    places = [(name, tuple(n - 1 for n in shapes[name])) for name in filled]
    places += [(name, tuple(int(chance.integers(0, n)) for n in shapes[name])) for _ in range(ELEMENTS - 1) for name in filled]
    for values, what in ((MODULAR, "modular words"), (WIDE, "float64")):
        left, count, wrong = WORK, 0, None
        seen = {name for name in outputs if name not in filled}
        for name, place in places:
            made = None
            for work in (left,) if name in seen else (left, FIRST_WORK):
                try:
                    made = _element(kernel, name, place, inputs, values, work)
                    break
                except (IndexError, ZeroDivisionError, KeyError):
                    return Instance(None, "it cannot be computed")
                except TooLarge:
                    pass
            if made is None:
                continue
            wanted, found, needed = made
            left = max(left - needed, 0)
            count += 1
            seen.add(name)
            if len(differences(wanted, found)):
                wrong = name, place, found, wanted
                break
        if wrong is not None and values is WIDE:
            name, place, found, wanted = wrong
            return Instance(name, f"element [{', '.join(map(str, place))}] is {found[0]}, and was written as {wanted[0]}")
        if wrong is None:
            of_what = f"{count} {'element' if count == 1 else 'elements'}, computed in {what}"
            reason = f"{of_what}, {'is' if count == 1 else 'are'}" if count else "its extents are too large to compute it"
            return Instance(None, reason, compared=frozenset(seen))
    return Instance(None, "it cannot be computed")


def _element(kernel: Kernel, name: str, place: tuple[int, ...], inputs: Inputs, values: Values, work: int) -> tuple[Array, Array, int]:
    """An element as written and as it is now, and how many points the larger side needed.

    Raises:
        TooLarge: more than ``work`` points.
    """
    sides = [SampledElements(kernel, definitions, inputs.extents, inputs, values, work) for definitions in (kernel.written, kernel.definitions)]
    with np.errstate(all="ignore"):
        wanted, found = (side.elements(name, tuple(np.array([i]) for i in place), 1) for side in sides)
    return wanted, found, work - min(side.left for side in sides)


def compared(kernel: Kernel, outputs: Sequence[str], extents: Mapping[str, int], draw: int = 0) -> Instance | str | None:
    """A difference, or the way in which the results are equal; ``None`` if they cannot be computed. ``draw``: the number of the set of inputs."""
    before = replace(kernel, definitions=kernel.written)
    arguments = Inputs(kernel, extents, draw).arguments()
    for values, what in ((MODULAR, "modular words"), (WIDE, "float64")):
        try:
            with np.errstate(all="ignore"):
                wanted = dict(zip((p.name for p in kernel.outputs), meaning(before, arguments, extents, values), strict=True))
                found = dict(zip((p.name for p in kernel.outputs), meaning(kernel, arguments, extents, values), strict=True))
        except (IndexError, ZeroDivisionError, KeyError):
            return None
        wrong = {name: places for name in outputs if len(places := differences(wanted[name], found[name]))}
        if not wrong:
            return what
        if values is WIDE:
            name, places = next(iter(wrong.items()))
            first = tuple(int(i) for i in places[0])
            at = ", ".join(map(str, first))
            reason = f"element [{at}] is {found[name][first]}, and was written as {wanted[name][first]}"
            return Instance(name, reason, tuple(f"extents {', '.join(f'{n} = {v}' for n, v in extents.items())}" for _ in extents and "1"))
    return None


def differences(a: Array, b: Array) -> npt.NDArray[np.intp]:
    """Where two arrays differ: by anything, but for rounding if they are floats."""
    if a.dtype.kind != "f":
        return np.argwhere(a != b)
    known = np.isfinite(a) & np.isfinite(b)
    scale = max(1.0, float(np.abs(a[known]).max(initial=0.0)))
    with np.errstate(all="ignore"):
        return np.argwhere(np.where(known, np.abs(a - b) > TOLERANCE * scale, ~((a == b) | (np.isnan(a) & np.isnan(b)))))

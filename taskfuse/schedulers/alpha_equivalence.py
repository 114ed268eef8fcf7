"""Fusions that are equal up to the names of their tensors and scalars: a schedule of one holds for the other, in its names.

A model repeats its layers, and the pieces of equal layers differ only in names. The *form* of a fusion is its text in names that follow from the order
of its tensors; fusions of one form have one schedule. A schedule in other names is a renamed copy of the scheduled fusion, with renamed code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from taskfuse.count import Count
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.printer import readable_order
from taskfuse.schedule.copy import Renaming, embed
from taskfuse.schedulers.candidates import Candidate, result
from taskfuse.schedulers.schedule import Chosen
from taskfuse.schedulers.script import RESERVED, variable

_NAME: Final = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_WORD: Final = re.compile(rf"(?P<comment>#.*)|(?P<task>name='(?:[^'\\]|\\.)*')|(?P<string>'(?:[^'\\]|\\.)*')|{_NAME.pattern}")
"""A comment, a string or a variable in code; or the name of a task, which may be called like a tensor."""
_FOUND: Final = re.compile(r"^(\w+) = fusion\.tensor\(('(?:[^'\\]|\\.)*')\)", re.MULTILINE)
_BOUND: Final = re.compile(r"^([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*),? = ", re.MULTILINE)
_AUTOMATIC: Final = re.compile(r"tv[0-9]+")


class CanonicalForm(NamedTuple):
    """A fusion up to names.

    Attributes:
        text: equal for equal fusions.
        names: of the tensors, in the order of the fusion, and then of the scalars.
    """

    text: str
    names: tuple[str, ...]


def form(fusion: Fusion) -> CanonicalForm:
    """The form of a fusion, scheduled or not. Dimensions keep their names."""
    names = (*(tv.name for tv in fusion.tensors()), *(s.name for s in fusion.scalars))
    numbers = {tv.name: k for k, tv in enumerate(fusion.tensors())}
    orders = [[numbers[tv.name] for tv in tensors] for tensors in (fusion.inputs, fusion.outputs)]
    own = _renamed(fusion, {name: f"v{k}" for k, name in enumerate(names)}, "form")
    own.inputs.sort(key={tv: k for k, tv in enumerate(readable_order(own))}.__getitem__)  # the only order that a text can have
    return CanonicalForm(f"{orders}\n{own}", names)


class CountsByForm:
    """The counts of kernels, made once for scheduled fusions of one form; see :class:`~taskfuse.schedulers.candidates.Counts`."""

    def __init__(self) -> None:
        self._known: dict[str, Count] = {}
        self.vain: set[object] = set()

    def __call__(self, scheduled: Fusion, make: Callable[[], Count]) -> Count:
        """The count of the kernel of a scheduled fusion, which ``make`` makes."""
        key = result(lambda: form(scheduled).text, None, "no form up to names", [])
        if key is None:
            return make()
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]


def in_other_names(found: Candidate, old: tuple[str, ...], new: tuple[str, ...]) -> Candidate:
    """A schedule of a fusion as the schedule of another one of its form. Tensors that it made get the names that the other fusion would give them.

    Args:
        old, new: the names of the two, in the order of their forms.
    """
    if old == new:
        return found
    names, taken = dict(zip(old, new, strict=True)), set(new)
    for tv in found.fusion.tensors():
        if tv.name in names:
            continue
        name, number = tv.name, tv.id
        if _AUTOMATIC.fullmatch(name):
            while (name := f"tv{number}") in taken:
                number += 1
        names[tv.name] = variable(name, taken)
        taken.add(names[tv.name])
    schedule = found.schedule
    note = f"as for {old[-1]}: equal pieces are scheduled once" if not schedule.notes or "equal pieces" not in schedule.notes[-1] else ""
    told: Chosen[Any] = replace(schedule, code=_words(schedule.code, names), notes=(*schedule.notes, *([note] if note else [])))
    return found._replace(fusion=_renamed(found.fusion, names, found.fusion.name), schedule=told)


def _renamed(fusion: Fusion, names: Mapping[str, str], name: str) -> Fusion:
    new = Fusion(name)
    new.dims.update(fusion.dims)
    new.residents = fusion.residents
    embed(fusion, new, Renaming(values=names))
    return new


def _words(code: str, names: Mapping[str, str]) -> str:
    """Code with other names of tensors, and variables named accordingly."""
    found = {match[1]: str(ast.literal_eval(match[2])) for match in _FOUND.finditer(code)}
    bound = [name for match in _BOUND.finditer(code) for name in match[1].split(", ")]
    made = {v: names[v] for v in bound if v not in found and v in names}
    taken = {v for v in bound if v not in found and v not in made} | RESERVED
    variables = dict[str, str]()
    for v in dict.fromkeys(bound):
        if v in found or v in made:
            variables[v] = variable(names.get(found[v], found[v]) if v in found else made[v], taken)
            taken.add(variables[v])

    def word(match: re.Match[str]) -> str:
        text = match[0]
        if match["comment"] is not None:  # apostrophes in it are not those of strings
            return _NAME.sub(lambda name: variables.get(name[0], name[0]), text)
        if match["task"] is not None:
            return text
        if match["string"] is not None:
            name = str(ast.literal_eval(text))
            return repr(names.get(name, name))
        return variables.get(text, text)

    return _WORD.sub(word, code)

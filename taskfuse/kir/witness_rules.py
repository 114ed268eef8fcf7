"""The verifier's rules for the witness: definitions that can be computed one after the other, and contents that their statements can write.

The proof checks that a kernel computes what its witness says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from taskfuse.dtypes import uint64
from taskfuse.ir.axes import is_map_symbol, iteration_point, value_symbol
from taskfuse.ir.fragments import MATRIX_ROW_BYTES, MATRIX_ROWS
from taskfuse.ir.scalar import Expr, Sym, is_boolean
from taskfuse.kir.declaration_rules import NO_NAME
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Choose, Compute, GatherCopy, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operand_printer import listed
from taskfuse.kir.operands import Access, Content, Holds, Immediate, IndexOf, Operand, ScalarValue, WritingStmt
from taskfuse.kir.products import LdMatrix, Mma, Shuffle, StMatrix, Wgmma
from taskfuse.kir.scope import Declarations, Scope
from taskfuse.kir.walk import updating
from taskfuse.kir.witness import INDEXED, Accumulate, Apply, Definition, Find, Iterate, Pick, Reduce, Send, Whole, operands_of, wrong_index

NO_SYMBOLS: frozenset[str] = frozenset()
VALUE = Content.VALUE


@dataclass(frozen=True, slots=True)
class Above:
    """The names that a definition may use: the kernel's declarations, and the inputs and tensors defined above it."""

    declarations: Declarations
    tensors: dict[str, TensorParam | Definition] = field(default_factory=lambda: {})


DefinitionRule = Callable[[Definition, Above], str | None]


def definition_problem(declarations: Declarations) -> tuple[int, str] | None:
    """The number of the first definition that breaks a rule, and the message. Original definitions follow, and keep all rules except those of storage."""
    kernel = declarations.kernel
    if kernel.written and not kernel.definitions:
        return 0, "definitions were written, and there are none"
    return _problem(declarations, kernel.definitions, 0, DEFINITION_RULES) or _problem(declarations, kernel.written, len(kernel.definitions), WRITTEN_RULES)


def _problem(declarations: Declarations, definitions: Sequence[Definition], first: int, rules: Sequence[DefinitionRule]) -> tuple[int, str] | None:
    above = Above(declarations, {p.name: p for p in declarations.kernel.inputs})
    for k, d in enumerate(definitions, first):
        for rule in rules:
            message = rule(d, above)
            if message is not None:
                return k, message
        above.tensors[d.tensor] = d
    if definitions:
        missing = next((p.name for p in declarations.kernel.outputs if p.name not in above.tensors), None)
        if missing is not None:
            return first + len(definitions) - 1, f"output '{missing}' has no definition, and others have"
    return None


# -- definitions --------------------------------------------------------------------------------------------------------------------


def tensors_are_defined_once(d: Definition, above: Above) -> str | None:
    """Inputs and scalar arguments are given; everything else has one definition."""
    name = d.tensor
    if not above.declarations.is_name(name):
        return NO_NAME.format(name)
    if name in above.declarations.scalars:
        return f"'{name}' is a scalar argument, which has no definition"
    match above.tensors.get(name):
        case TensorParam():
            return f"'{name}' is an input, which has no definition"
        case Definition():
            return f"'{name}' is defined twice"
        case None:
            return None


def outputs_are_defined_as_declared(d: Definition, above: Above) -> str | None:
    """The definition of an output has its dtype and shape."""
    found = above.declarations.storage.get(d.tensor)
    if not isinstance(found, TensorParam):
        return None
    if d.dtype is not found.dtype:
        return f"output '{d.tensor}' is {found.dtype}, and its definition {d.dtype}"
    return None if d.shape == found.shape else f"the shape of output '{d.tensor}' is ({listed(found.shape)}), that of its definition ({listed(d.shape)})"


def spaces_are_known(d: Definition, above: Above) -> str | None:
    """Shape and iteration space depend on extents only, whose names are not symbols of definitions."""
    extents = above.declarations.extents
    taken = next((name for name in sorted(extents) if is_map_symbol(name)), None)
    if taken is not None:
        return f"'{taken}' is an extent and an index of definitions: rename the extent"
    name = _foreign((*d.shape, *d.space), extents)
    return None if name is None else f"the definition of '{d.tensor}' has an extent with '{name}', which is not an extent of the kernel"


def points_have_a_place(d: Definition, above: Above) -> str | None:
    """A point of the iteration space belongs to one element; only in a reduction do several belong to the same."""
    if len(d.place) != len(d.shape):
        return f"the shape of '{d.tensor}' has {len(d.shape)} axes, and a point of its iteration space belongs to an element with {len(d.place)} indices"
    name = _foreign(d.place, _point(len(d.space)) | above.declarations.extents)
    if name is not None:
        return _not_here(name, d)
    if isinstance(d.rule, Iterate):
        return _place_of_fold(d, d.rule)
    if not isinstance(d.rule, Reduce):
        is_its_shape = (d.space, d.place) == (d.shape, iteration_point(len(d.shape)))
        return None if is_its_shape else f"'{d.tensor}' is not a reduction: its iteration space is its shape"
    axes = {str(e): n for e, n in zip(iteration_point(len(d.space)), d.space, strict=True)}
    wrong = next((k for k, (e, n) in enumerate(zip(d.place, d.shape, strict=True)) if isinstance(e, Sym) and axes.get(e.name, n) is not n), None)
    return None if wrong is None else f"axis {wrong} of '{d.tensor}' is an axis of its iteration space, which has another extent"


def _place_of_fold(d: Definition, rule: Iterate) -> str | None:
    """The element that a step belongs to is named by the other axes."""
    if rule.axis not in range(len(d.space)):
        return f"'{d.tensor}' has an iteration space of {len(d.space)} axes, and none that is number {rule.axis}"
    others = [k for k in range(len(d.space)) if k != rule.axis]
    if d.place != tuple(iteration_point(len(d.space))[k] for k in others) or d.shape != tuple(d.space[k] for k in others):
        return f"'{d.tensor}' is a fold: its shape is its iteration space without axis {rule.axis}"
    return None


def _wrong_factor(d: Definition, rule: Reduce, axis: int) -> str | None:
    """A sum from 0 is rescaled along one of its axes, by an element that is the same for all terms at one index of it."""
    kept = {e.name for e in d.place if isinstance(e, Sym)}
    if axis not in range(len(d.space)) or f"i{axis}" in kept:
        return f"'{d.tensor}' is not reduced along axis {axis}, and is rescaled there"
    if rule.combine.name != "add" or rule.init.value != 0 or len(kept) != len(d.place):
        return f"'{d.tensor}' is rescaled, and is not a sum from 0 along axes"
    factor = rule.operands[-1] if rule.operands else None
    used = {name for e in factor.index for name in e.free} if isinstance(factor, Access) else set[str]()
    others = {f"i{k}" for k in range(len(d.space))} - kept - {f"i{axis}"}
    return (
        f"'{d.tensor}' is rescaled by an operand that is not one element for all terms at an index" if not isinstance(factor, Access) or used & others else None
    )


def _wrong_bound(d: Definition, rule: Reduce, extents: frozenset[str]) -> str | None:
    """Terms start and end along reduced axes, at integers that depend on the element alone."""
    kept = {e.name for e in d.place if isinstance(e, Sym)}
    for what, bounds in (("start", rule.starts), ("end", rule.ends)):
        axes = [k for k, _ in bounds]
        if axes != sorted(set(axes)) or not all(k < len(d.space) and f"i{k}" not in kept for k in axes) or (bounds and len(kept) != len(d.place)):
            return f"'{d.tensor}' has {what}s along other axes than those that it reduces, in order"
        name = _foreign((e for _, e in bounds), extents | kept)
        if name is not None:
            return f"'{name}' is not an index of an element of '{d.tensor}', and says where its terms {what}"
    return None


def rules_are_complete(d: Definition, above: Above) -> str | None:
    """An op has its operands, a choice a case, a scan an axis, a gather a value per symbol, an assembly a place per part."""
    match d.rule:
        case Reduce(rescaled=axis) as rule if axis is not None and (problem := _wrong_factor(d, rule, axis)) is not None:
            return problem
        case Reduce() as rule if (problem := _wrong_bound(d, rule, above.declarations.extents | above.declarations.tables.keys())) is not None:
            return problem
        case Apply(op=op, operands=operands) | Reduce(body=op, terms=operands):
            return None if len(operands) == op.arity else f"{op.name} takes {op.arity} operands, not {len(operands)}"
        case Pick(cases=cases):
            wrong = next((c.cond for c in cases if not is_boolean(c.cond)), None)
            return f"'{d.tensor}' picks from nothing" if not cases else None if wrong is None else f"the condition {wrong} is not a boolean"
        case Accumulate(axis=axis, start=start):
            if axis not in range(len(d.space)):
                return f"'{d.tensor}' has {len(d.space)} axes, and none that is number {axis}"
            others = {f"i{k}" for k in range(len(d.space)) if k != axis}
            name = _foreign((start,), above.declarations.extents | above.declarations.tables.keys() | others)
            return None if name is None else f"'{name}' is not an index of an element of '{d.tensor}' across its axis, and says where it starts"
        case Iterate(op=op, operands=operands):
            return None if len(operands) == op.arity - 1 else f"{op.name} takes a state and {op.arity - 1} operands, not {len(operands)}"
        case Find(values=values, extents=extents):
            return None if values and len(values) == len(extents) else f"'{d.tensor}' is found at {len(values)} values with {len(extents)} extents"
        case Send(values=values, extents=extents):
            return None if len(values) == len(extents) else f"'{d.tensor}' is sent to {len(values)} values with {len(extents)} extents"
        case Whole(parts=parts, places=places, conditions=conditions):
            wrong = next((c for c in conditions if not is_boolean(c)), None)
            if not parts or not len(parts) == len(places) == len(conditions):
                return f"'{d.tensor}' is made of {len(parts)} parts at {len(places)} places under {len(conditions)} conditions"
            return None if wrong is None else f"the condition {wrong} is not a boolean"


def functions_have_a_dtype(d: Definition, above: Above) -> str | None:
    """A function is defined in its compute dtype; a combining function keeps its dtype."""
    match d.rule:
        case Apply(op=op, dtype=dtype) | Reduce(body=op, dtype=dtype) | Iterate(op=op, dtype=dtype) if not op.computes_in(dtype):
            return f"{op.name} does not compute in {dtype}"
        case Reduce(combine=combine, dtype=dtype) | Accumulate(combine=combine, dtype=dtype):
            return None if combine.op.computes_in(dtype) and combine.op.result_dtype(dtype) is dtype else f"{combine.name} does not combine {dtype}"
        case _:
            return None


def operands_exist(d: Definition, above: Above) -> str | None:
    """The tensors that a definition names are inputs or defined above it, with one index per axis."""
    for operand in _operands(d):
        match operand:
            case Access(buffer=name, index=index):
                found = above.tensors.get(name)
                if found is None:
                    return f"there is no input, or tensor that is defined above, '{name}'"
                if len(index) != len(found.shape):
                    return f"'{name}' has {len(found.shape)} axes, the access {len(index)} indices"
            case ScalarValue(name=name) if name not in above.declarations.scalars:
                return f"there is no scalar argument '{name}'"
            case Immediate(value=value, dtype=dtype) if not dtype.holds(value):
                return f"{value} is not a value of {dtype}"
            case _:
                pass
    return None


def symbols_have_a_meaning(d: Definition, above: Above) -> str | None:
    """Expressions use extents, the indices of a point, and, in the source of a gather, its values."""
    extents = above.declarations.extents
    point = extents | _point(len(d.space)) | above.declarations.tables.keys()
    match d.rule:
        case Find(source=source, values=values, extents=sizes):
            found = frozenset(str(value_symbol(k)) for k in range(len(values)))
            name = _foreign(source.index, point | found) or _foreign((e for v in values for e in v.index), point) or _foreign(sizes, extents)
        case Send(operand=operand, values=values, extents=sizes):
            name = _foreign(_expressions((operand, *values)), point) or _foreign(sizes, extents)
        case Whole():
            name = None  # of its parts: parts_fit
        case Pick(cases=cases):
            name = _foreign((c.cond for c in cases), point) or _foreign(_expressions(_operands(d)), point)
        case Apply() | Reduce() | Accumulate() | Iterate():
            name = _foreign(_expressions(_operands(d)), point)
    if name is not None:
        return _not_here(name, d)
    conditions = (c.cond for c in d.rule.cases) if isinstance(d.rule, Pick) else ()
    return _misread(above.declarations, (*conditions, *_expressions(_operands(d))))


def values_are_integers(d: Definition, above: Above) -> str | None:
    """Values that occur in an index are integers."""
    for v in d.rule.values if isinstance(d.rule, (Find, Send)) else ():
        dtype = above.tensors[v.buffer].dtype
        if not dtype.is_integer or dtype is uint64:
            return f"an index is an integer of at most 64 bits with a sign, and '{v.buffer}' is {dtype}"
    return None


def elements_keep_their_dtype(d: Definition, above: Above) -> str | None:
    """An element that is found, and one of a part, is itself, and not converted."""
    match d.rule:
        case Find(source=source):
            names: tuple[str, ...] = (source.buffer,)
        case Whole(parts=parts):
            names = parts
        case Send(operand=Access(buffer=name)):
            names = (name,)
        case _:
            return None
    other = next((name for name in names if name in above.tensors and above.tensors[name].dtype is not d.dtype), None)
    return None if other is None else f"'{d.tensor}' is {d.dtype}, and has elements of '{other}', which is {above.tensors[other].dtype}"


def parts_fit(d: Definition, above: Above) -> str | None:
    """Every part has a place for each of its elements."""
    if not isinstance(d.rule, Whole):
        return None
    for part, place, condition in zip(d.rule.parts, d.rule.places, d.rule.conditions, strict=True):
        found = above.tensors.get(part)
        if found is None:
            return f"there is no input, or tensor that is defined above, '{part}'"
        if len(place) != len(d.shape):
            return f"'{d.tensor}' has {len(d.shape)} axes, and the place of '{part}' in it {len(place)} indices"
        rule = found.rule if isinstance(found, Definition) else None
        values = frozenset(str(value_symbol(k)) for k in range(len(rule.values))) if isinstance(rule, Send) else frozenset[str]()
        name = _foreign((*place, condition), _point(len(found.shape)) | above.declarations.extents | above.declarations.tables.keys() | values)
        if name is not None:
            return f"'{name}' is not defined in the place of '{part}', which has {len(found.shape)} axes"
        if (misread := _misread(above.declarations, (*place, condition))) is not None:
            return misread
    return None


def parts_have_one_place(d: Definition, above: Above) -> str | None:
    """A tensor is a part of one assembly, at one place, since its elements are stored there."""
    if not isinstance(d.rule, Whole):
        return None
    others = {part: t.tensor for t in above.tensors.values() if isinstance(t, Definition) and isinstance(t.rule, Whole) for part in t.rule.parts}
    again = next((part for k, part in enumerate(d.rule.parts) if part in others or part in d.rule.parts[:k]), None)
    return None if again is None else f"'{again}' is a part of '{others.get(again, d.tensor)}' already: copy it"


def _operands(d: Definition) -> tuple[Operand, ...]:
    return (*operands_of(d.rule), d.rule.init) if isinstance(d.rule, (Reduce, Iterate)) else operands_of(d.rule)


def _expressions(operands: Iterable[Operand]) -> Iterator[Expr]:
    for operand in operands:
        match operand:
            case Access(index=index):
                yield from index
            case IndexOf(value=value):
                yield value
            case Immediate() | ScalarValue():
                pass


@cache
def _point(rank: int) -> frozenset[str]:
    """The indices of a point of an iteration space with this number of axes, as names."""
    return frozenset(map(str, iteration_point(rank)))


def _foreign(expressions: Iterable[Expr], allowed: frozenset[str]) -> str | None:
    """A symbol that is not allowed."""
    return next((min(e.free - allowed) for e in expressions if not e.free <= allowed), None)


def _misread(declarations: Declarations, expressions: Iterable[Expr]) -> str | None:
    """The first fault of some expressions' elements of tensors."""
    return next(filter(None, map(declarations.misread, expressions)), None)


def _not_here(name: str, d: Definition) -> str:
    return f"'{name}' is not defined in the definition of '{d.tensor}', whose iteration space has {len(d.space)} axes"


DEFINITION_RULES: tuple[DefinitionRule, ...] = (
    tensors_are_defined_once,
    outputs_are_defined_as_declared,
    spaces_are_known,
    points_have_a_place,
    rules_are_complete,
    functions_have_a_dtype,
    operands_exist,
    symbols_have_a_meaning,
    values_are_integers,
    elements_keep_their_dtype,
    parts_fit,
    parts_have_one_place,
)
WRITTEN_RULES: tuple[DefinitionRule, ...] = DEFINITION_RULES[:-1]
"""The rules of original definitions. They store nothing, so a tensor may be a part of several assemblies."""


# -- statements ---------------------------------------------------------------------------------------------------------------------


HoldsRule = Callable[[WritingStmt, Holds, Definition, Scope], str | None]


def holds_problem(subject: WritingStmt, scope: Scope) -> str | None:
    """Why a statement's claim is invalid; ``None`` if it is valid."""
    holds = subject.holds
    if holds is None:
        return None
    definition = scope.declarations.definitions.get(holds.tensor)
    if definition is None:
        return f"there is no definition of '{holds.tensor}'"
    return next((message for rule in HOLDS_RULES if (message := rule(subject, holds, definition, scope)) is not None), None)


def contents_fit_tensors(stmt: WritingStmt, holds: Holds, definition: Definition, scope: Scope) -> str | None:
    """Terms are those of reductions, and sums those of reductions and scans."""
    match holds.content:
        case content if content is VALUE:
            return None
        case Content.RESCALED if not isinstance(definition.rule, Reduce) or definition.rule.rescaled is None:
            return f"'{holds.tensor}' is not rescaled"
        case Content.BODY if not isinstance(definition.rule, Reduce):
            return f"'{holds.tensor}' is not a reduction, so nothing stands for one term of it"
        case Content.START | Content.TERM | Content.PART if not isinstance(definition.rule, (Reduce, Accumulate, Iterate)):
            return f"'{holds.tensor}' is not a reduction and no scan, so nothing stands for '{holds.content.value}' of it"
        case _:
            return None


def contents_fit_statements(stmt: WritingStmt, holds: Holds, definition: Definition, scope: Scope) -> str | None:
    """Computations and products add terms; instructions that copy several elements copy elements with a value."""
    content = holds.content
    match stmt:
        case Compute() if not isinstance(definition.rule, Send):  # by far the most
            return None
        case Mma() | Wgmma() if content is not Content.TERM:
            return f"a matrix product adds terms: it stands for 'term', not for '{content.value}'"
        case AtomicUpdate() | TmaStore() if updating(stmt) is not None and (not isinstance(definition.rule, Send) or content is not Content.VALUE):
            return f"this sends elements to another tensor: they stand for 'value' of one that is sent, not for '{content.value}' of '{holds.tensor}'"
        case AtomicUpdate() | TmaStore() if updating(stmt) is not None:
            return None
        case WritingStmt() if isinstance(definition.rule, Send):
            return f"'{holds.tensor}' is sent to another tensor: an UPDATE does so, or a TMA store by a function"
        case Choose() | Shuffle() if content is not VALUE and content in (Content.TERM, Content.RESCALED):
            return "this adds nothing to what was there, so it stands for no 'term'"
        case GatherCopy() | VectorCopy() | AsyncCopy() | TmaLoad() | TmaStore() | LdMatrix() | StMatrix() if content is not VALUE:
            return f"this copies elements: they stand for 'value', not for '{content.value}'"
        case _:
            return None


def indices_match(stmt: WritingStmt, holds: Holds, definition: Definition, scope: Scope) -> str | None:
    """One index per axis of the shape, or of the iteration space."""
    return wrong_index(holds, definition)


def symbols_are_in_scope(stmt: WritingStmt, holds: Holds, definition: Definition, scope: Scope) -> str | None:
    """The symbols that expressions may use here, and those of the tile, which are no names."""
    own = frozenset(f"tile.{k}" for k in range(len(holds.tile))) if holds.tile else NO_SYMBOLS
    name = _foreign(holds.index, scope.symbols | own if own else scope.symbols)
    if name is not None:
        return f"'{name}' is not in scope in what is held"
    return _misread(scope.declarations, holds.index)


def tiles_fit(stmt: WritingStmt, holds: Holds, definition: Definition, scope: Scope) -> str | None:
    """A tile has one symbol per axis of the instruction, each with as many values."""
    if any(n < 1 for n in holds.tile):
        return f"a tile of {_numbers(holds.tile)}: every number is positive"
    wanted = _tile(stmt, scope) if holds.content in INDEXED else ()
    if wanted is None or holds.tile == wanted:
        return None
    if not wanted:
        return f"this writes one element, and has no tile of {_numbers(holds.tile)}"
    return f"{f'a tile of {_numbers(holds.tile)}' if holds.tile else 'no tile'}, where this instruction has one of {_numbers(wanted)}"


def _tile(stmt: WritingStmt, scope: Scope) -> tuple[int, ...] | None:
    """The tile of an instruction; ``None``: any, as a box says which element is which."""
    match stmt:
        case GatherCopy(width=width) | AtomicUpdate(width=width) | VectorCopy(width=width) | AsyncCopy(width=width):
            return () if width == 1 else (width,)
        case Wgmma(row=row, n=n, k=k) | Mma(row=row, n=n, k=k):
            return row.m, n, k
        case LdMatrix(source=source, matrices=count) | StMatrix(source=source, matrices=count):
            dtype = scope.declarations.dtype(source.buffer)
            return None if dtype is None else (MATRIX_ROWS * count, MATRIX_ROW_BYTES // dtype.itemsize)
        case TmaLoad() | TmaStore():
            return None
        case _:
            return ()


def _numbers(tile: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, tile))})"


HOLDS_RULES: tuple[HoldsRule, ...] = (contents_fit_tensors, contents_fit_statements, indices_match, symbols_are_in_scope, tiles_fit)

"""The verifier's rules for gathers."""

from __future__ import annotations

from taskfuse.dtypes import uint64
from taskfuse.kir.declaration_rules import NO_NAME
from taskfuse.kir.nodes import Gather
from taskfuse.kir.scope import Scope
from taskfuse.kir.statement_rules import VECTOR_BYTES, VECTOR_WIDTHS, StatementRule, Subject


def values_have_symbols(subject: Subject, scope: Scope) -> str | None:
    """Each value has a symbol of its own, which nothing but the index that is read has."""
    if not isinstance(subject, Gather):
        return None
    if not subject.values:
        return "a gather without values"
    symbols = [v.symbol for v in subject.values]
    for symbol in symbols:
        if not scope.declarations.is_name(symbol):
            return NO_NAME.format(symbol)
        if symbol in scope.symbols or symbol in scope.declarations.cursors or scope.declarations.is_declared(symbol) or symbols.count(symbol) > 1:
            return f"the symbol '{symbol}' already means something here"
    outside = (*subject.out.index, *(e for v in subject.values for e in (*v.source.index, v.extent)))
    used = next((s for s in symbols if any(s in e.free for e in outside)), None)
    return None if used is None else f"'{used}' is used outside of the index that is read"


def values_are_integers(subject: Subject, scope: Scope) -> str | None:
    """A value is an integer that 64 bits with a sign hold."""
    if not isinstance(subject, Gather):
        return None
    for v in subject.values:
        dtype = scope.declarations.dtype(v.source.buffer)
        if dtype is None or not dtype.is_integer or dtype is uint64:
            return f"a value of a gather is an integer of at most 64 bits with a sign, and '{v.source.buffer}' is {dtype}"
    return None


def gathers_are_vectors(subject: Subject, scope: Scope) -> str | None:
    """A gather does not convert; several elements are a vector, at one value of every symbol."""
    if not isinstance(subject, Gather):
        return None
    out, source, width = subject.out, subject.source, subject.width
    to, of = scope.declarations.dtype(out.buffer), scope.declarations.dtype(source.buffer)
    if to is None or to is not of:
        return f"a gather does not convert: '{out.buffer}' is {to}, '{source.buffer}' is {of}"
    if width == 1:
        return None
    if width not in VECTOR_WIDTHS or width * to.itemsize > VECTOR_BYTES:
        return f"a vector of {width} {to}: widths are 2, 4, 8 and 16, and at most {VECTOR_BYTES} bytes"
    if not out.index or not source.index or any(v.symbol in source.index[-1].free for v in subject.values):
        return "a gather of vectors needs a last axis on both sides, at an index without values"
    return None


GATHER_RULES: tuple[StatementRule, ...] = (values_have_symbols, values_are_integers, gathers_are_vectors)

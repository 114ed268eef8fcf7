"""The C++ forms of elementwise functions: a column of the table in :mod:`taskfuse.ir.elementwise`.

``{0}``, ``{1}``, ``{2}`` are the operands, ``{T}`` their type and ``{U}`` the type in which it wraps. An operand occurs once in a text, since
it may be a load. A formula that needs an operand twice is a device function (:mod:`taskfuse.cuda.functions`), called by its name.
"""

from __future__ import annotations

from dataclasses import dataclass

AND, OR, XOR = "((bool)({0} & {1}))", "((bool)({0} | {1}))", "({0} != {1})"


@dataclass(frozen=True, slots=True)
class Spelling:
    """The form of one function for each class of types. ``None``: the function does not accept these types.

    Attributes:
        f32, f64: for float and double.
        signed, unsigned, boolean: for integers of any width, and for bool.
        bfloat16: for float if operands and result are all bfloat16: as exact as ``f32`` then, and faster; ``None``: as ``f32``.
        rounded: for float if the result is rounded to 16 bits and not read otherwise: relative error of 2^-16 before that, and faster; ``None``: as
            ``f32``.
        balanced: the same as ``rounded`` with one instruction of the special function units fewer and several more of others. Of elements in turns one takes
            it, and one ``rounded``, so that no unit waits for the other.
        narrow: for float if the result is only converted to numbers of at most 16 bits other than bfloat16, after ``keeps_size`` or at once, and elements share
            the second operand: it makes the same numbers; ``None``: as ``f32``.
        usual: for float: the same number of most operands; ``None``: none that is faster.
        usual_condition: whether operands are such.
        for_any: for float: the same number of all operands, faster than ``f32`` of those that are not; ``None``: as ``f32``.
        by_constant: for float by a last operand whose reciprocal is a sum of two numbers: the name of a function of the first operand and these, as ``narrow``;
            or as ``usual``; after ``is_usual_`` as ``usual_condition``, and after ``any_`` as ``for_any``.
        keeps_size: true if of operands that differ only where both are less than 2^-100 or both at least 2^24 in magnitude, of one sign, it makes results
            that do, too.
        fast: for float if accuracy may be lower (compiled with ``--use_fast_math``); ``None``: as ``f32``.
        moves: true if the result is one of the operands unchanged: floats below 32 bits are passed as their bits.
        pair: for two 16-bit floats in one 32-bit word, operands and result: the same numbers as ``f32``, rounded. ``{P}`` is ``bf16x2`` or ``f16x2``.
    """

    f32: str | None = None
    f64: str | None = None
    signed: str | None = None
    unsigned: str | None = None
    boolean: str | None = None
    fast: str | None = None
    moves: bool = False
    bfloat16: str | None = None
    rounded: str | None = None
    balanced: str | None = None
    narrow: str | None = None
    usual: str | None = None
    usual_condition: str | None = None
    for_any: str | None = None
    by_constant: str | None = None
    keeps_size: bool = False
    pair: str | None = None


def floats(
    f32: str,
    f64: str,
    fast: str | None = None,
    bfloat16: str | None = None,
    rounded: str | None = None,
    balanced: str | None = None,
    narrow: str | None = None,
    usual: str | None = None,
    usual_condition: str | None = None,
    for_any: str | None = None,
    by_constant: str | None = None,
) -> Spelling:
    """A function of floats only."""
    return Spelling(
        f32,
        f64,
        fast=fast,
        bfloat16=bfloat16,
        rounded=rounded,
        balanced=balanced,
        narrow=narrow,
        usual=usual,
        usual_condition=usual_condition,
        for_any=for_any,
        by_constant=by_constant,
    )


def library(
    name: str, arity: int = 1, fast: str | None = None, bfloat16: str | None = None, usual: str | None = None, usual_condition: str | None = None
) -> Spelling:
    """A function of CUDA's math library, named after C's."""
    operands = ", ".join(f"{{{i}}}" for i in range(arity))
    return floats(f"{name}f({operands})", f"{name}({operands})", fast, bfloat16, usual=usual, usual_condition=usual_condition)


def anywhere(text: str, boolean: str | None = None, moves: bool = False) -> Spelling:
    """One text for all types, with an optional other one for bool."""
    return Spelling(text, text, text, text, boolean or text, moves=moves)


def infix(operator: str, boolean: str | None = None) -> Spelling:
    """A binary operator that cannot wrap: a comparison, or logic."""
    return anywhere(f"({{0}} {operator} {{1}})", boolean)


def rounding(name: str, *, keeps_size: bool = False) -> Spelling:
    """Rounding to integers; integers are unchanged. ``keeps_size``: to 0 from both sides."""
    return Spelling(f"{name}f({{0}})", f"{name}({{0}})", "{0}", "{0}", keeps_size=keeps_size)


def arithmetic(operator: str, boolean: str | None, pair: str) -> Spelling:
    """An operator on numbers; integers wrap. ``pair``: a function of two 16-bit floats."""
    plain, wrapping = f"({{0}} {operator} {{1}})", f"(({{T}})(({{U}}){{0}} {operator} ({{U}}){{1}}))"
    return Spelling(plain, plain, wrapping, wrapping, boolean, pair=f"{{P}}_{pair}({{0}}, {{1}})")


def bitwise(operator: str) -> Spelling:
    """An operator on bits."""
    text = f"(({{T}})({{0}} {operator} {{1}}))"
    return Spelling(None, None, text, text, text)


def extremum(f32: str, f64: str, integers: str, boolean: str, pair: str | None = None) -> Spelling:
    """The greater or the lesser of two operands."""
    pairs = pair and f"{{P}}_{pair}({{0}}, {{1}})"
    return numbers(f"{f32}({{0}}, {{1}})", f"{f64}({{0}}, {{1}})", f"{integers}<{{T}}>({{0}}, {{1}})", boolean=boolean, pair=pairs, keeps_size=True)


def numbers(
    f32: str,
    f64: str,
    signed: str,
    unsigned: str | None = None,
    boolean: str | None = None,
    fast: str | None = None,
    pair: str | None = None,
    *,
    keeps_size: bool = False,
) -> Spelling:
    """A text for each kind of number; ``signed`` holds for all integers if ``unsigned`` is omitted."""
    return Spelling(f32, f64, signed, unsigned or signed, boolean, fast, pair=pair, keeps_size=keeps_size)

"""Strategies of hypothesis with the types that its own signatures leave out."""

from collections.abc import Callable
from typing import Any, TypeVar, overload

from hypothesis import strategies as st

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
R = TypeVar("R")


@overload
def built(call: Callable[[A], R], a: st.SearchStrategy[A], /) -> st.SearchStrategy[R]: ...
@overload
def built(call: Callable[[A, B], R], a: st.SearchStrategy[A], b: st.SearchStrategy[B], /) -> st.SearchStrategy[R]: ...
@overload
def built(call: Callable[[A, B, C], R], a: st.SearchStrategy[A], b: st.SearchStrategy[B], c: st.SearchStrategy[C], /) -> st.SearchStrategy[R]: ...
@overload
def built(
    call: Callable[[A, B, C, D], R], a: st.SearchStrategy[A], b: st.SearchStrategy[B], c: st.SearchStrategy[C], d: st.SearchStrategy[D], /
) -> st.SearchStrategy[R]: ...
def built(call: Callable[..., R], *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[R]:
    """``st.builds`` of a function of one to four values: a lambda gets its parameters' types from the strategies."""
    return st.builds(call, *parts)

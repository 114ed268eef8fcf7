"""Identifiers of the emitted text."""

from __future__ import annotations

import re

from taskfuse.cuda.functions import IDENTIFIERS

_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl concept const consteval
constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double dynamic_cast else enum explicit
export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
protected public register reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template this
thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq blockDim blockIdx
gridDim threadIdx warpSize Divisor Report TensorMap min max report shared counters main size_t uint2 uint4 dim3
""",
    )
)
# helpers of integer expressions and of statements (taskfuse/cuda/expressions.py, taskfuse/cuda/instructions.py)
_HELPERS = re.compile(
    r"shared_address|copy(\d+|_commit|_wait)|async_copy\d+(_or_zero)?|fence_\w+|mbarrier_\w+|bulk_\w+|tma_\w+|wgmma_\w+|mma_\w+|matrix|(ld|st)matrix_\w+|word|set_word"
    r"|set_registers_\d+|counter_(arrive|value)|grid_barrier_\w+"
    r"|named_barrier|cluster_(barrier|index_[xyz])|report_timeout|nanoseconds|delay_at_random|floor_(divide|modulo)|table_[0-9a-f]+"
)


class Names:
    """Gives every name of kernel IR an identifier of its own, as close to it as C++ allows."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        self._taken: set[str] = set()

    def reserve(self, identifier: str) -> str:
        """An identifier that nothing else gets: ``identifier``, with a number behind it if it is taken."""
        plain = re.sub(r"\W", "_", identifier)
        if plain in _KEYWORDS or plain in IDENTIFIERS or _HELPERS.fullmatch(plain) or plain.startswith("__") or re.match(r"_[A-Z]|\d", plain):
            plain = f"v_{plain.lstrip('_')}"
        found, n = plain, 1
        while found in self._taken:
            found, n = f"{plain}_{n}", n + 1
        self._taken.add(found)
        return found

    def __getitem__(self, name: str) -> str:
        """The identifier of ``name``."""
        found = self._given.get(name)
        if found is None:
            found = self._given[name] = self.reserve(name)
        return found

    def alias(self, name: str, identifier: str) -> str:
        """The identifier of ``name``, as close to ``identifier`` as is free."""
        if name not in self._given:
            self._given[name] = self.reserve(identifier)
        return self._given[name]

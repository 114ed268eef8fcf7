"""Updates of elements that data names, combined before they are sent: those of one thread in registers, those of a warp among its lanes.

The updates of one element take turns in the L2 cache, however many threads make them: 100,000 of two elements take longer than 10 MB of updates of others.
Which elements are updated often, such as those of a common word, data says. So a thread keeps what it has combined for the two elements that it updated last
(a write-combining buffer), and sends it when it updates a third. At the end of the loop, lanes of a warp that hold the same element combine what they hold,
in a tree, and one of them sends it (Westphal, "Voting and Shuffling to Optimize Atomic Operations", 2015).

In kernel IR each is an update of its own. Updates of one element have no order, so one may be made later, and together with others of the same function, as
long as nothing tells: in the loop are no statements that order memory, and no other accesses of what is updated.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from taskfuse.cuda.c_types import c_type
from taskfuse.cuda.copy_instructions import update, update_words
from taskfuse.cuda.text import Helper
from taskfuse.cuda.writer import TextScope, Writer
from taskfuse.dtypes import DType
from taskfuse.ir.combine import Combine
from taskfuse.kir import walk
from taskfuse.kir.nodes import AtomicUpdate, Bind, Choose, Compute, For, GatherCopy, If, VectorCopy
from taskfuse.kir.products import Shuffle
from taskfuse.kir.walk import accesses

_UNORDERING = (For, Bind, If, Compute, Choose, GatherCopy, AtomicUpdate, VectorCopy, Shuffle)
"""Statements that order no memory, and access it as their thread."""


class HeldUpdates:
    """The updates of a kernel that threads make at the end of a loop around them."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._outputs = {source: out for out, source in writer.kernel.in_place.items()}
        self._is_needed = any(isinstance(s, AtomicUpdate) and s.values for s in walk(writer.kernel))
        self._variables: dict[AtomicUpdate, str] = {}

    def variable(self, stmt: AtomicUpdate) -> str | None:
        """The variable of what the thread combines for an update; ``None``: it is made where it stands."""
        return self._variables.get(stmt)

    @contextmanager
    def around(self, loop: For, scope: TextScope) -> Generator[None]:
        """Around the text of a loop: declare the variables, and send what they hold."""
        w = self._writer
        new = held_in(loop, self._outputs) if self._is_needed and not self._variables else ()
        for u in new:
            self._variables[u] = w.names.reserve(f"held_{w.names[u.out.buffer]}")
            kind = held(u.combine, w.places[u.out.buffer].dtype, u.width)
            w.helpers.add(kind)
            w.line(scope, f"{kind.name} {self._variables[u]};")
        yield
        for u in new:
            w.call(scope, send_held(u.combine, w.places[u.out.buffer].dtype, u.width), self._variables.pop(u))


def held_in(loop: For, outputs: Mapping[str, str]) -> tuple[AtomicUpdate, ...]:
    """The updates in a loop that threads may make at its end.

    Args:
        outputs: the output that is written into the array of an input, for each such input.
    """
    inside = tuple(walk(loop))
    updates = [s for s in inside if isinstance(s, AtomicUpdate)]
    if not any(s.values for s in updates) or not all(isinstance(s, _UNORDERING) and not (isinstance(s, For) and s.queue is not None) for s in inside):
        return ()
    touched: set[str] = set()
    functions: dict[str, set[Combine]] = {}
    for s in inside:
        outs, ins = accesses(s)
        if isinstance(s, AtomicUpdate):
            functions.setdefault(s.out.buffer, set()).add(s.combine)
            touched |= {a.buffer for a in ins if a != s.out}
        else:
            touched |= {a.buffer for a in (*outs, *ins)}
    touched |= {outputs[name] for name in touched if name in outputs}
    held = (s for s in updates if s.values and s.out.buffer not in touched and len(functions[s.out.buffer]) == 1)
    return tuple(dict.fromkeys(held))


def held(combine: Combine, dtype: DType, width: int) -> Helper:
    """The type of what a thread has combined for the two elements that it updated last; null: none."""
    name, ctype = f"held_{_suffix(combine, dtype, width)}", c_type(dtype)
    return Helper(
        name, f"struct {name} {{\n  {ctype}* last = nullptr;\n  {ctype}* before = nullptr;\n  {ctype} of_last[{width}] = {{}}, of_before[{width}] = {{}};\n}};"
    )


def hold(combine: Combine, dtype: DType, width: int) -> Helper:
    """Combines values with what is held for an element, or holds them, and sends what is held for the element that was updated less recently."""
    sent, kept, suffix, ctype = update(combine, dtype, width), held(combine, dtype, width), _suffix(combine, dtype, width), c_type(dtype)
    each = range(width)
    values = ", ".join(f"{ctype} v{k}" for k in each)
    with_last = "\n".join(f"    held.of_last[{k}] = {_combined(combine, dtype, f'held.of_last[{k}]', f'v{k}')};" for k in each)
    with_before = "\n".join(f"    v{k} = {_combined(combine, dtype, f'held.of_before[{k}]', f'v{k}')};" for k in each)
    before = ", ".join(f"held.of_before[{k}]" for k in each)
    moved = "\n".join(f"  held.of_before[{k}] = held.of_last[{k}];\n  held.of_last[{k}] = v{k};" for k in each)
    return Helper(
        f"hold_{suffix}",
        f"""\
__device__ __forceinline__ void hold_{suffix}({kept.name}& held, {ctype}* out, {values}) {{
  if (out == held.last) {{
{with_last}
    return;
  }}
  if (out == held.before) {{
{with_before}
  }} else if (held.before != nullptr) {{
    {sent.name}(held.before, {before});
  }}
  held.before = held.last;
  held.last = out;
{moved}
}}""",
        (sent, kept),
        sent.arch,
    )


def send_together(combine: Combine, dtype: DType, width: int) -> Helper:
    """Combines the values of the lanes that execute it and have one element, of which one sends them; null: there is nothing to send.

    ``match.any`` takes a time for each of its values, some 75 cycles of a multiprocessor for 32 (H200). Where no lane has the element of another one at a
    distance that is a power of two, that is left out: few lanes, if any, would have one in common.
    """
    sent, suffix, ctype = update(combine, dtype, width), _suffix(combine, dtype, width), c_type(dtype)
    each = range(width)
    values = ", ".join(f"{ctype} v{k}" for k in each)
    others = "\n".join(f"    const {ctype} w{k} = __shfl_down_sync(lanes, v{k}, away);" for k in each)
    combined = "\n".join(f"      v{k} = {_combined(combine, dtype, f'v{k}', f'w{k}')};" for k in each)
    return Helper(
        f"send_together_{suffix}",
        f"""\
__device__ __forceinline__ void send_together_{suffix}({ctype}* out, {values}) {{
  unsigned lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  const unsigned lanes = __activemask(), word = (unsigned)(unsigned long long)out;
  bool is_near = false;
#pragma unroll
  for (unsigned distance = 1; distance < 32; distance *= 2) {{
    is_near |= __shfl_down_sync(lanes, word, distance) == word & out != nullptr & lane + distance < 32;
  }}
  const bool is_shared = __ballot_sync(lanes, is_near) != 0;
  const unsigned same = is_shared ? __match_any_sync(lanes, (unsigned long long)out) : 1u << lane;
  unsigned above = same & 0xfffffffeu << lane, rank = __popc(same & ((1u << lane) - 1));
  const bool is_first = rank == 0;
  while (__ballot_sync(lanes, above != 0) != 0) {{
    const unsigned away = above != 0 ? __ffs(above) - 1 - lane : 0;
{others}
    if (above != 0) {{
{combined}
    }}
    above &= __ballot_sync(lanes, (rank & 1) == 0);
    rank >>= 1;
  }}
  if (is_first && out != nullptr) {sent.name}(out, {", ".join(f"v{k}" for k in each)});
}}""",
        (sent,),
        sent.arch,
    )


def send_held(combine: Combine, dtype: DType, width: int) -> Helper:
    """Sends what lanes hold. Of two elements, all lanes send that with the lower address first, and that with the higher one together with those of one."""
    together, kept, suffix, ctype = send_together(combine, dtype, width), held(combine, dtype, width), _suffix(combine, dtype, width), c_type(dtype)
    each = range(width)
    low = ", ".join(f"is_last_low ? held.of_last[{k}] : held.of_before[{k}]" for k in each)
    high = ", ".join(f"is_last_low ? held.of_before[{k}] : held.of_last[{k}]" for k in each)
    return Helper(
        f"send_held_{suffix}",
        f"""\
__device__ __forceinline__ void send_held_{suffix}(const {kept.name}& held) {{
  const bool is_last_low = (unsigned long long)held.last < (unsigned long long)held.before;
  {ctype} *const low = is_last_low ? held.last : held.before, *const high = is_last_low ? held.before : held.last;
  {together.name}(low, {low});
  {together.name}(high, {high});
}}""",
        (together, kept),
        together.arch,
    )


def _suffix(combine: Combine, dtype: DType, width: int) -> str:
    return "_".join((*update_words(combine, dtype), *((f"v{width}",) if width > 1 else ())))


def _combined(combine: Combine, dtype: DType, a: str, b: str) -> str:
    """The text of what an update makes of two values: sums of integers wrap around."""
    match update_words(combine, dtype)[0]:
        case "add" if dtype.is_integer:
            unsigned = "unsigned long long" if dtype.bits == 64 else "unsigned"
            return f"({c_type(dtype)})(({unsigned}){a} + ({unsigned}){b})"
        case "add":
            return f"{a} + {b}"
        case "max":
            return f"{a} > {b} ? {a} : {b}"
        case "min":
            return f"{a} < {b} ? {a} : {b}"
        case "and":
            return f"{a} & {b}"
        case "or":
            return f"{a} | {b}"
        case _:
            return f"{a} ^ {b}"

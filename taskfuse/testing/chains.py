"""Random kernels that compute elements in registers: chains of functions of narrow floats, with vector copies, conversions, pairs, shuffles, and elements that
threads hand to each other in Shared memory or in a result.

Every function has one right result, so a kernel has exactly the results of the simulator. Fusions of random schedules rarely unroll such loops over
registers; what the printer does with them has many cases (words of two elements, registers of floats, roundings that can be left out).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.dtypes import DTYPES, DType, bfloat16, float16
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule, Elementwise
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.testing.chooser import Chooser, RandomChooser
from taskfuse.testing.tolerance import EXACT

Array = NDArray[Any]
_DTYPES = (*(bfloat16,) * 8, *(float16,) * 4, *DTYPES.values())
_USUAL = ("add", "sub", "mul", "maximum", "minimum", "relu", "neg", "abs", "fma", "where")


@dataclass(frozen=True, slots=True)
class ChainCase:
    """A kernel and its inputs."""

    kernel: Kernel
    arguments: tuple[Array, ...]


def functions(dtype: DType) -> tuple[Elementwise, ...]:
    """The functions of operands of a dtype that have one right result, whatever the sign of a NaN."""
    found = (op for op in ELEMENTWISE.values() if op in EXACT and op.rule is not DTypeRule.CAST and op.name != "copysign")
    return tuple(op for op in found if op.computes_in(dtype))


def chain(seed: int) -> ChainCase:
    """The kernel of a seed."""
    return _Chain(RandomChooser(seed), seed).build()


@dataclass(slots=True)
class _Chain:
    chooser: Chooser
    seed: int
    lines: list[str] = field(default_factory=list[str])
    registers: dict[str, DType] = field(default_factory=dict[str, DType])
    shared: dict[str, tuple[DType, int]] = field(default_factory=dict[str, tuple[DType, int]])
    handed: dict[str, tuple[DType, int]] = field(default_factory=dict[str, tuple[DType, int]])

    def build(self) -> ChainCase:
        c = self.chooser
        width = c.pick((8, 4, 2, 16, 1))
        threads = c.pick((1, 4, 32))
        dtypes = [c.pick(_DTYPES) for _ in range(c.integer(1, 3))]
        for k, dtype in enumerate(dtypes):
            self._copy(dtype, width, self._register(dtype), "0", f"a{k}", f"{width}*threadIdx.x", c.chance(50))
        for _ in range(c.integer(2, 9)):
            self._step(width, threads)
        outs = [name for name in self.registers if c.chance(40)] or [list(self.registers)[-1]]
        for k, name in enumerate(outs):
            self._copy(self.registers[name], width, f"b{k}", f"{width}*threadIdx.x", name, "0", c.chance(50))
        size = width * threads
        inputs = ", ".join(f"a{k}: {d}[{size}]" for k, d in enumerate(dtypes))
        results = {f"b{k}": (self.registers[name], size) for k, name in enumerate(outs)} | self.handed
        outputs = ", ".join(f"{name}: {dtype}[{count}]" for name, (dtype, count) in results.items())
        local = "".join(f"  LOCAL {name}: {dtype}[{width}]\n" for name, dtype in self.registers.items())
        for k, (name, (dtype, count)) in enumerate(self.shared.items()):
            local += f"  SHARED {name}: {dtype}[{count}] align 16 @ {16 * size * k}\n"
        head = f"KERNEL chain({inputs}) -> ({outputs})\n  GRID (1, 1, 1)  BLOCK ({threads}, 1, 1)\n{local}\n"
        kernel = parse_kernel(head + "\n".join(self.lines) + "\n")
        rng = np.random.default_rng(self.seed)
        return ChainCase(kernel, tuple(_numbers(rng, d, size) for d in dtypes))

    def _register(self, dtype: DType) -> str:
        name = f"r{len(self.registers)}"
        self.registers[name] = dtype
        return name

    def _copy(self, dtype: DType, width: int, out: str, at: str, source: str, place: str, vector: bool) -> None:
        """Elements from memory to registers or back: by vectors, or one by one."""
        step = width
        while step * dtype.itemsize > 16:
            step //= 2
        if vector and step > 1 and width % step == 0:
            for k in range(0, width, step):
                self.lines.append(f"COPY {out}[{_plus(at, k)}] <- {source}[{_plus(place, k)}] width {step}")
            return
        self._loop(width, f"{out}[{_plus(at, 'i')}] = copy({source}[{_plus(place, 'i')}])")

    def _loop(self, width: int, line: str) -> None:
        self.lines += [f"FOR i in 0..{width} UNROLL:", f"  {line}"]

    def _step(self, width: int, threads: int) -> None:
        c = self.chooser
        names = list(self.registers)
        source = names[-1] if c.chance(50) else c.pick(names)
        dtype = self.registers[source]
        if c.chance(20):
            to = c.pick([d for d in _DTYPES if d is not dtype])
            self._loop(width, f"{self._register(to)}[i] = cast.{dtype}({source}[i])")
            return
        if c.chance(12) and threads > 1:
            self._hand(source, width, threads)
            return
        if c.chance(8) and threads == 32:
            self._loop(width, f"SHUFFLE {self._register(dtype)}[i] <- {source}[i] xor {c.pick((1, 2, 16))}")
            return
        compute = dtype.compute if c.chance(70) or dtype.itemsize == 1 else dtype
        known = functions(compute)
        usual = [op for op in known if op.name in _USUAL]
        op = c.pick(usual if usual and c.chance(75) else known)
        others = [n for n in names if self.registers[n] is dtype]
        place = c.pick(("i", "i", "i", "i", f"{width - 1} - i")) if width > 1 else "i"
        operands = [f"{source}[{place}]"]
        for _ in range(op.arity - 1):
            operands.append(self._number(compute) if c.chance(25) else f"{c.pick(others)}[i]")
        if op.rule is DTypeRule.SELECT:
            operands[0] = f"{c.pick(names)}[i]"
            operands[1] = f"{source}[i]"
        made = op.result_dtype(compute)
        out_dtype = dtype if made is compute else made
        suffix = "" if compute is out_dtype else f".{compute}"
        out = source if c.chance(15) and place == "i" and out_dtype is dtype else self._register(out_dtype)
        self._loop(width, f"{out}[i] = {op.name}{suffix}({', '.join(operands)})")

    def _hand(self, source: str, width: int, threads: int) -> None:
        """Elements of another thread, in Shared memory or in a result."""
        c, dtype = self.chooser, self.registers[source]
        kind, group = c.pick((("s", self.shared), ("x", self.handed)))
        name = f"{kind}{len(group)}"
        one = c.integer(0, threads - 1) if c.chance(50) else None  # thread that hands its elements to all; or each hands them to another one
        group[name] = dtype, width * (threads if one is None else 1)
        if one is not None:
            self.lines.append(f"IF threadIdx.x == {one}:")
        first = len(self.lines)
        self._copy(dtype, width, name, f"{width}*threadIdx.x" if one is None else "0", source, "0", c.chance(50))
        if one is not None:
            self.lines[first:] = ["  " + line for line in self.lines[first:]]
        self.lines.append("SYNC block")
        other = f"{width}*((threadIdx.x + {c.integer(1, threads - 1)}) % {threads})" if one is None else "0"
        self._copy(dtype, width, self._register(dtype), "0", name, other, c.chance(50))

    def _number(self, dtype: DType) -> str:
        """A constant operand."""
        if dtype.is_bool:
            return self.chooser.pick(("true", "false"))
        number = self.chooser.pick(("1", "2", "3") if dtype.min_value == 0 else ("1", "2", "-3"))
        return f"{number}.0" if dtype.is_float else number


def _plus(at: str, more: object) -> str:
    return str(more) if at == "0" else at if more == 0 else f"{at} + {more}"


def _numbers(rng: np.random.Generator, dtype: DType, count: int) -> Array:
    """Small numbers, fractions, and some numbers at the limits of a dtype."""
    if dtype.is_bool:
        return rng.integers(0, 2, count).astype(dtype.numpy)
    if not dtype.is_float:
        return rng.integers(int(max(dtype.min_value, -9)), 10, count).astype(dtype.numpy)
    with np.errstate(all="ignore"):
        found = (rng.normal(0, 1, count) * rng.choice([1.0, 1.0, 16.0, 2.0**-12], count)).astype(dtype.numpy)
        limits = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, dtype.max_value, 2.0**-24]).astype(dtype.numpy)
        return np.where(rng.random(count) < 0.1, rng.choice(limits, count), found).astype(dtype.numpy)

"""Random math: a graph of ops on small tensors. Every call is valid: ops that would exceed the limits of the options are skipped."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import taskfuse as tf
from taskfuse.dtypes import bool_, float32, int32, int64, uint8
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import ONE, Const
from taskfuse.ir.tensor import Scalar, TensorView
from taskfuse.ops.registry import OPS, OpKind
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.inputs import RandomInputs
from taskfuse.testing.options import CaseOptions
from taskfuse.testing.program import Recorder, SpelledArgument

# The usual few. What a seed draws depends on their order; those that options.functions asks for are all of the tables.
UNARY = ("neg", "exp", "sin", "abs", "relu", "square", "tanh", "sigmoid", "sqrt", "copy", "gelu", "floor", "erf", "isnan", "logical_not", "sign")
UNARY_EXACT = ("neg", "abs", "relu", "copy", "sign", "logical_not", "floor", "isfinite")
BINARY = ("add", "mul", "sub", "maximum", "minimum", "div", "pow", "lt", "eq", "logical_and", "hypot", "remainder", "ge", "copysign")
BINARY_EXACT = ("add", "sub", "maximum", "minimum", "mul", "lt", "eq", "ge", "logical_or")
REDUCTIONS = ("sum", "max", "min", "prod", "mean", "any", "all", "var")
REDUCTIONS_EXACT = ("sum", "max", "min", "any", "all")
POSITIONS = ("argmax", "argmin")
SCANS = ("cumsum", "cumprod", "cummax", "cummin")
SCANS_EXACT = ("cumsum", "cummax", "cummin")
FOLDS = ("fold", "decayed_sum")
WINDOWS = ("avg_pool", "max_pool", "adaptive_avg_pool", "adaptive_max_pool", "interpolate", "ravel", "trace", "dot", "outer", "as_strided", "searchsorted")
STEPS, STEPS_EXACT = ("fma", "maximum", "minimum", "add", "sub", "mul"), ("maximum", "minimum", "add", "sub")
COMPOSITES = ("softmax", "layer_norm", "rms_norm", "log_softmax")

EVERY_UNARY, EVERY_BINARY, EVERY_TERNARY = (
    tuple(row.name for row in ELEMENTWISE.values() if row.arity == arity and row.rule is not DTypeRule.CAST) for arity in (1, 2, 3)
)


def _every(kind: OpKind, *parameters: str) -> tuple[str, ...]:
    """The ops of a kind with one result and these parameters, which take one tensor and nothing else that has no default."""
    found: list[str] = []
    for row in OPS.values():
        if row.kind is kind and row.name not in POSITIONS + FOLDS:
            called = inspect.signature(getattr(tf, row.name))
            needed = [p for p in list(called.parameters.values())[1:] if p.default is p.empty and p.name not in parameters]
            if called.return_annotation == "TensorView" and called.parameters.keys() >= set(parameters) and not needed:
                found.append(row.name)
    return tuple(found)


EVERY_REDUCTION, EVERY_SCAN, EVERY_COMPOSITE = _every(OpKind.REDUCTION, "axis", "keepdims"), _every(OpKind.SCAN, "axis"), _every(OpKind.COMPOSITE, "axis")


class Graph(RandomInputs):
    """Builds the math of a fusion."""

    def __init__(self, chooser: Chooser, options: CaseOptions, recorder: Recorder) -> None:
        super().__init__(chooser, options, recorder)
        self.scalars: list[Scalar] = []
        self._kinds = self._weights()

    def grow(self) -> None:
        """Add inputs, ops and outputs."""
        for _ in range(1 + self.chooser.integer(0, 2)):
            self.new_input(self.random_shape())
        for _ in range(1 + self.chooser.integer(0, self.options.ops - 1)):
            made = self.chooser.pick(self._kinds)()
            if made is None:
                made = self._unary()
            if made is not None:
                self.tensors.append(made)
        if all(tv.is_input for tv in self.tensors):
            self.tensors.append(self.recorder.call(tf, "copy", self.tensors[0]))
        for tv in self.fusion.tensors():
            if not tv.is_input and (not tv.uses or (among(tv, self.tensors) and self.chooser.chance(8))):
                self.recorder.call(self.fusion, "add_output", tv)

    # -- choices --------------------------------------------------------------------------------------------------------------------

    def _weights(self) -> list[Callable[[], TensorView | None]]:
        o = self.options
        shares: list[tuple[Callable[[], TensorView | None], int]] = [
            (self._view, o.views),
            (self._select, o.selects),
            (self._reduction, o.reductions),
            (self._matmul, o.matmuls),
            (self._composite, 0 if o.exact else o.composites),
            (self._with_scalar, o.scalars),
            (self._gather, o.gathers),
            (self._scan, o.scans),
            (self._position, o.positions),
            (self._einsum, o.einsums),
            (self._jagged, o.jagged),
            (self._scatter, o.scatters),
            (self._window, 6 if o.functions else 0),
            (self._cast, 4 if len(o.dtypes) > 1 else 0),
            (self._ternary, 6),
            (self._broadcast, 4 if o.views else 0),
        ]
        rest = max(100 - sum(n for _, n in shares), 20)
        return [f for f, n in ((self._unary, rest // 2), (self._binary, rest - rest // 2), *shares) for _ in range(n)]

    def _op(self, usual: Sequence[str], exact: Sequence[str], every: Sequence[str]) -> str:
        return self.chooser.pick(every if self.options.functions else exact if self.options.exact else usual)

    # -- ops ------------------------------------------------------------------------------------------------------------------------

    def _try(self, op: str, *args: object, **keywords: object) -> TensorView | None:
        return self.recorder.attempt(tf, op, *args, **keywords)

    def _unary(self) -> TensorView | None:
        return self._try(self._op(UNARY, UNARY_EXACT, EVERY_UNARY), self._operand())

    def _partner(self, x: TensorView) -> TensorView | None:
        """A tensor that broadcasts with ``x``."""
        found = [y for y in self.tensors if y is not x and self._broadcasts(x, y)]
        return self.chooser.pick(found) if found else None

    def _broadcasts(self, x: TensorView, y: TensorView) -> bool:
        extents: list[int] = []
        for a, b in zip(reversed(x.shape), reversed(y.shape), strict=False):
            if a is not b and a is not ONE and b is not ONE:
                return False
            extents.append(self.size(b if a is ONE else a))
        longer = x if x.ndim > y.ndim else y
        return self._fits(*extents, *self.shape(longer)[: abs(x.ndim - y.ndim)])

    def _binary(self) -> TensorView | None:
        op = self._op(BINARY, BINARY_EXACT, EVERY_BINARY)
        x = self._operand()
        y = self._partner(x)
        if y is None and self.chooser.chance(30):
            like = [self._dimension(e) for e in x.shape]
            y = self.new_input([d for d in like if d is not None]) if None not in like else None
        if y is None:
            return self._try(op, x, self.chooser.pick((1, 2, 3)))
        return self._try(op, *((x, y) if self.chooser.chance(70) else (y, x)))

    def _ternary(self) -> TensorView | None:
        x = self._operand()
        y = self._partner(x)
        if y is None:
            return self._try("clamp", x, 1, 2)
        z = self._partner(y)
        if z is None or not self._broadcasts(x, z):
            z = x
        return self._try(self._op(("where", "fma", "where"), ("where", "fma", "where"), EVERY_TERNARY), x, y, z)

    def _cast(self) -> TensorView | None:
        x = self._operand()
        dtype = self._dtype()
        if self.options.exact and (x.dtype.is_float and not dtype.is_float):
            dtype = float32
        return self._try("cast", x, dtype)

    def _with_scalar(self) -> TensorView | None:
        if not self.scalars or self.chooser.chance(30):
            self.scalars.append(self.recorder.call(tf, "define_scalar", self.chooser.pick((float32, int32))))
        return self._try(self.chooser.pick(("mul", "add")), self._operand(), self.chooser.pick(self.scalars))

    def _broadcast(self) -> TensorView | None:
        x = self._operand()
        match self.chooser.integer(0, 2):
            case 0:
                return self._try("expand_dims", x, self.chooser.integer(0, x.ndim))
            case 1:
                extra = self.chooser.pick(self.declared() or [2])
                if not self._fits(*self.shape(x), *self._sizes([extra])):
                    return None
                return self._try("broadcast_to", x, [extra, *self._extents(x)])
            case _:
                return self._try("squeeze", x)

    def _view(self) -> TensorView | None:
        x = self._operand()
        if x.ndim == 0:
            return None
        match self.chooser.integer(0, 3):
            case 0:
                return self._try("permute", x, self.chooser.order(range(x.ndim)))
            case 1:
                return self._reshape(x)
            case 2:
                return self._try("flip", x, self.chooser.integer(0, x.ndim - 1))
            case _:
                return self._slice(x)

    def _reshape(self, x: TensorView) -> TensorView | None:
        """Flatten two dimensions, or split one by a factor."""
        shape = self.shape(x)
        if x.ndim > 1 and self.chooser.chance(60):
            at = self.chooser.integer(0, x.ndim - 2)
            names = self._extents(x)
            return self._try("reshape", x, [*names[:at], -1, *names[at + 2 :]])
        at = self.chooser.integer(0, x.ndim - 1)
        divisors = [d for d in range(2, shape[at]) if shape[at] % d == 0] if isinstance(x.shape[at], Const) else []
        if not divisors:
            return None
        names = self._extents(x)
        return self._try("reshape", x, [*names[:at], -1, self.chooser.pick(divisors), *names[at + 1 :]])

    def _slice(self, x: TensorView) -> TensorView | None:
        shape = self.shape(x)
        starts: list[int | None] = []
        stops: list[int | None] = []
        steps: list[int | None] = []
        for n in shape:
            if self.chooser.chance(50):
                starts.append(None)
                stops.append(None)
                steps.append(None)
                continue
            step = self.chooser.pick((1, 1, 2, -1, -2, 3))
            a, b = self.chooser.integer(0, max(n - 1, 0)), self.chooser.integer(1, max(n, 1))
            low, high = min(a, b - 1), max(a + 1, b)
            starts.append(low if step > 0 else high - 1)
            stops.append(high if step > 0 else (None if low == 0 else low - 1))
            steps.append(step)
        return self._try("slice", x, starts, stops, steps)

    def _extents(self, x: TensorView) -> list[object]:
        """The extents of ``x`` as arguments of a call."""
        return [e.value if isinstance(e, Const) else SpelledArgument(f"{self.recorder.text(x)}.shape[{d}]", e) for d, e in enumerate(x.shape)]

    def _select(self) -> TensorView | None:
        x = self._operand()
        if x.ndim == 0:
            return None
        at = self.chooser.integer(0, x.ndim - 1)
        others = [y for y in self.tensors if y.ndim == x.ndim and all(a is b for d, (a, b) in enumerate(zip(x.shape, y.shape, strict=True)) if d != at)]
        shape = self.shape(x)
        kind = self.chooser.integer(0, 2)
        if kind == 0 or not others:
            widths = [(self.chooser.integer(0, 2), self.chooser.integer(0, 2)) if self.chooser.chance(50) else (0, 0) for _ in shape]
            if not self._fits(*(n + a + b for n, (a, b) in zip(shape, widths, strict=True))):
                return None
            return self._try("pad", x, widths, self.chooser.pick((0, 1)))
        parts = [x, *(self.chooser.pick(others) for _ in range(self.chooser.integer(1, 3)))]
        total = sum(self.shape(p)[at] for p in parts)
        if not self._fits(total, *(n for d, n in enumerate(shape) if d != at)):
            return None
        form = self.chooser.pick(("gather", "gather", "scatter"))
        if kind == 1:
            same = [p for p in parts if p.shape == x.shape]
            return self._try("stack", same, at, form) if self._fits(len(same), *shape) else None
        return self._try("cat", parts, at, form)

    def _axes(self, x: TensorView) -> list[int]:
        return self.chooser.some(range(x.ndim), 50) or [self.chooser.integer(0, x.ndim - 1)]

    def _reduction(self) -> TensorView | None:
        x = self._operand()
        if x.ndim == 0:
            return None
        op = self._op(REDUCTIONS, REDUCTIONS_EXACT, EVERY_REDUCTION)
        return self._try(op, x, axis=self._axes(x), keepdims=self.chooser.chance(35))

    def _position(self) -> TensorView | None:
        x = self._operand()
        if x.ndim == 0:
            return None
        return self._try(self.chooser.pick(POSITIONS), x, self.chooser.integer(0, x.ndim - 1), keepdims=self.chooser.chance(35))

    def _einsum(self) -> TensorView | None:
        """A contraction of two matrices over any of their axes, with any order of result axes."""
        x = self._operand()
        found = [(y, d) for y in self.tensors for d in range(2) if x.ndim == y.ndim == 2 and y.shape[d] is x.shape[1]]
        if x.ndim != 2 or not found:
            return None
        y, d = self.chooser.pick(found)
        if not self._fits(*self.shape(x), self.shape(y)[1 - d]):
            return None
        return self._try("einsum", "ij,jk->ki" if d == 0 else "ij,kj->ki", x, y)

    def _scan(self) -> TensorView | None:
        x = self._operand()
        if x.ndim == 0:
            return None
        if self.chooser.chance(25):
            return self._fold(x)
        op = self._op(SCANS, SCANS_EXACT, EVERY_SCAN)
        at = None if self.chooser.chance(20) else self.chooser.integer(0, x.ndim - 1)
        return self._try(op, x, at, **({"exclusive": True} if op in SCANS and self.chooser.chance(30) else {}))

    def _fold(self, x: TensorView) -> TensorView | None:
        """A state that takes a step for each element along an axis."""
        decays = not self.options.exact and self.chooser.chance(25)
        step = "fma" if decays else self.chooser.pick(STEPS_EXACT if self.options.exact else STEPS)
        partner = self._partner(x) if step == "fma" else None
        others = [] if step != "fma" else [x if partner is None else partner]
        ndim = max(tv.ndim for tv in (x, *others))
        if decays:
            return self._try("decayed_sum", x, *others, axis=self.chooser.integer(0, ndim - 1))
        return self._try("fold", step, x, *others, axis=self.chooser.integer(0, ndim - 1), init=self.chooser.integer(0, 2))

    def _window(self) -> TensorView | None:
        """Functions of windows along the last axis, and of tensors of one and two dimensions."""
        x = self._operand()
        if x.ndim == 0 or x.dtype is bool_:
            return None
        name = self.chooser.pick(WINDOWS)
        match name:
            case "avg_pool" | "max_pool":
                return self._try(name, x, [self.chooser.integer(1, 3)], stride=self.chooser.integer(1, 2))
            case "adaptive_avg_pool" | "adaptive_max_pool" | "interpolate":
                return self._try(name, x, [self.chooser.integer(1, 4)])
            case "dot" | "outer":
                flat = x if x.ndim == 1 else self._try("ravel", x)
                return None if flat is None or not self._fits(*self.shape(flat) * 2) else self._try(name, flat, flat)
            case "as_strided":
                size = self.chooser.integer(1, 2)
                return self._try(name, x, [size, 2], [self.chooser.integer(0, 2), 1])
            case "searchsorted":
                return self._try(name, self.new_input([self._dims[0]], x.dtype), x)
            case _:
                return self._try(name, x)

    def _gather(self) -> TensorView | None:
        """A read at the values of another tensor, some of which may be out of range."""
        x = self._operand()
        if x.ndim == 0:
            return None
        at = self.chooser.integer(0, x.ndim - 1)
        found = [y for y in self.tensors if y.dtype.is_integer]
        y = self.chooser.pick(found) if found and self.chooser.chance(70) else self.new_input(self.random_shape(), int32)
        shape, places = self.shape(x), self.shape(y)
        if y.ndim == x.ndim and self.chooser.chance(50):
            most = (max(a, b) for d, (a, b) in enumerate(zip(shape, places, strict=True)) if d != at)
            if not self._fits(places[at], *most):
                return None
            return self._try("gather", x, at, y) if self.options.functions and self.chooser.chance(40) else self._try("take_along_axis", x, y, at)
        return self._try("take", x, y, at) if self._fits(*shape[:at], *places, *shape[at + 1 :]) else None

    def _scatter(self) -> TensorView | None:
        """Writes at the values of another tensor, some of which may be out of range."""
        x = self._operand()
        if x.ndim == 0:
            return None
        at = self.chooser.integer(0, x.ndim - 1)
        found = [y for y in self.tensors if y.dtype.is_integer and y.ndim == 1]
        many = self.chooser.pick(self._dims)
        index = self.chooser.pick(found) if found and self.chooser.chance(60) else self.new_input([many], int32)
        match self.chooser.integer(0, 3):
            case 0:
                return self._try("bincount", index, self.chooser.pick((1, 3, 4)))
            case 1:
                fitting = [y for y in self.tensors if y.ndim and y.shape[0] is index.shape[0] and self._fits(3, *self.shape(y))]
                return self._try("segment_sum", self.chooser.pick(fitting), index, 3) if fitting else None
            case 2:
                op = self.chooser.pick(("scatter", "scatter_add"))
                like = [y for y in self.tensors if y.dtype.is_integer and y.ndim == x.ndim and self._fits(*self.shape(x), self.shape(y)[at])]
                return self._try(op, x, at, self.chooser.pick(like), self.chooser.pick((1, 0))) if like else None
            case _:
                rest = [self._dimension(e) for e in (*x.shape[:at], index.shape[0], *x.shape[at + 1 :])]
                if None in rest or not self._fits(*self.shape(x), self.size(index.shape[0])):
                    return None
                source = self.new_input([d for d in rest if d is not None], x.dtype)
                return self._try("index_put", x, [*[None] * at, index], source, self.chooser.chance(60))

    def _jagged(self) -> TensorView | None:
        """Ragged rows, padded to a dense tensor; the table holds arbitrary values."""
        x = self._operand()
        if x.ndim == 0:
            return None
        most = self._dimension(x.shape[0])
        if most is None:
            return None
        found = [tv for tv, known in self.fusion.tables.items() if known.high is x.shape[0]]
        if found and self.chooser.chance(60):
            table = self.chooser.pick(found)
        else:
            dtype = self.chooser.pick((int32, int32, int64, uint8))
            options = {"lengths": True} if self.chooser.chance(30) else {}
            table = self.recorder.call(tf, "table", f"rows{len(self.fusion.tables)}", 1 + self.chooser.integer(1, 5), most, dtype, **options)
        length = self.chooser.pick((most, *self.declared()))
        rows = self.size(table.shape[0]) - (not self.fusion.tables[table].lengths)
        if not self._fits(rows, *self._sizes([length]), *self.shape(x)[1:]):
            return None
        return self._try("jagged_to_padded_dense", x, table, length)

    def _composite(self) -> TensorView | None:
        x = self._operand()
        if x.ndim == 0 or x.dtype is bool_:
            return None
        return self._try(self._op(COMPOSITES, (), EVERY_COMPOSITE), x, axis=self.chooser.integer(0, x.ndim - 1))

    def _matmul(self) -> TensorView | None:
        x = self._operand()
        if x.ndim == 0 or x.dtype is bool_:
            return None
        shape = self.shape(x)
        columns = self.chooser.pick(self._dims)
        if not self._fits(*shape, *self._sizes([columns])):
            return None
        found = [y for y in self.tensors if y.ndim > 1 and y.shape[-2] is x.shape[-1] and y.ndim <= 3 and x.ndim <= 3 and self._fits(*shape, self.shape(y)[-1])]
        y = self.chooser.pick(found) if found else None
        if y is None:
            inner = self._dimension(x.shape[-1])
            if inner is None:
                return None
            y = self.new_input([inner, columns], x.dtype)
        return self._try("bmm" if x.ndim == y.ndim == 3 and self.options.functions else "matmul", x, y)

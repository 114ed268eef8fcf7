"""``python -m taskfuse.testing.anything``: checks that automatic schedules of random fusions of all ops are right.

The graphs are those of :mod:`taskfuse.testing.graphs` with every function of the tables, plus ops that these omit: repeats, shifts and cuts, ops without
operands, products of several factors, and products on tensor cores. ``--extents``: with symbolic extents that may be 0, called at 0 and 1, too. A failure
prints the program and the command that reproduces it.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

import taskfuse as tf
from taskfuse.check import verify
from taskfuse.dtypes import DTYPES
from taskfuse.ir.arguments import bind_shapes
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.scalar import Const
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.values import MODULAR
from taskfuse.kir import Kernel
from taskfuse.kir.arguments import bind_symbols
from taskfuse.kir.declarations import TensorParam
from taskfuse.runtime.automatic import assumed, check_open
from taskfuse.runtime.executable import Executable
from taskfuse.runtime.kernel import one_kernel
from taskfuse.runtime.views import StridedView
from taskfuse.schedulers.candidates import INTERNAL
from taskfuse.schedulers.schedule import Schedule
from taskfuse.schedulers.segmentation import Segmentation
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.sim import simulate
from taskfuse.target import DEFAULT
from taskfuse.testing.case import Case, Outcome
from taskfuse.testing.chooser import Chooser, RandomChooser
from taskfuse.testing.graphs import Graph
from taskfuse.testing.options import CaseOptions
from taskfuse.testing.program import Recorder
from taskfuse.testing.signatures import attempt, drawn, dtypes, patterns, shapes

ANYTHING = CaseOptions(
    ops=9,
    functions=True,
    dtypes=tuple(DTYPES.values()),
    symbolic=10,
    sizes=(1, 2, 3, 4, 5, 7, 8, 13, 16),
    elements=900,
    empty=10,
    gathers=8,
    scatters=6,
    scans=5,
    positions=3,
    einsums=4,
    matmuls=10,
    composites=5,
    views=16,
    scalars=3,
)
SYMBOLIC = replace(ANYTHING, symbolic=70, empty=0, may_be_empty=100, sizes=(2, 3, 4, 5, 7))
TILES = (8, 16, 24, 32, 64)
"""Extents of products for tensor cores."""
MOST = 1 << 15
"""The most elements of a tensor."""
ROUNDED = 5e-2
"""The greatest difference between results in short floats, for values around 1."""


class AnyGraph(Graph):
    """A graph of all ops."""

    def _weights(self) -> list[Callable[[], TensorView | None]]:
        more = (
            (self._repeated, 6),
            (self._parts, 6),
            (self._made, 5),
            (self._masked, 4),
            (self._contraction, 5),
            (self._tiles, 4),
            (self._turned, 6),
            (self._any, 24),
        )
        return [*super()._weights(), *(f for f, n in more for _ in range(n))]

    def _call(self, op: str, *args: object, **keywords: object) -> TensorView | None:
        """The first result of an op; other ops may read the others."""
        made: TensorView | tuple[TensorView, ...] | None = self.recorder.attempt(tf, op, *args, **keywords)
        if not isinstance(made, tuple):
            return made
        self.tensors += made[1:]
        return made[0]

    def _any(self) -> TensorView | None:
        """Any op there is, with arguments by its signature: of a tensor that is there, if one has a shape that the op takes."""
        op = self.chooser.pick(drawn())
        known = patterns(op)
        if not known:
            return None
        pattern = self.chooser.pick(known)
        x = self._operand() if pattern and self.chooser.chance(70) else None
        first = None if x is None or any(not isinstance(e, Const) for e in x.shape) else self.shape(x)
        found = None if first is None else shapes(pattern, first, self.chooser, self.options.sizes)
        if found is None:
            x, found = None, shapes(pattern, None, self.chooser, self.options.sizes)
        assert found is not None
        if not self._fits(*(n for shape in found for n in shape)):
            return None
        kinds = dtypes(op, len(found), self._dtype() if x is None else x.dtype)
        there = [] if x is None else [x]
        inputs = [self.new_input([*shape], dtype) for shape, dtype in zip(found[len(there) :], kinds[len(there) :], strict=True)]
        made: TensorView | tuple[TensorView, ...] | None = attempt(op, [*there, *inputs], self.chooser, self.recorder)
        if not isinstance(made, tuple):
            return made
        self.tensors += made[1:]
        return made[0]

    def _axis(self, x: TensorView) -> int:
        return self.chooser.integer(0, x.ndim - 1)

    def _repeated(self) -> TensorView | None:
        """An op that repeats or reorders elements."""
        x = self._operand()
        if x.ndim == 0:
            return None
        axis, shape = self._axis(x), self.shape(x)
        n = shape[axis]
        match self.chooser.integer(0, 5):
            case 0:
                return self._call("roll", x, self.chooser.integer(-3, 3), axis)
            case 1:
                times = self.chooser.integer(1, 3)
                return self._call("repeat", x, times, axis) if self._fits(times, *shape) else None
            case 2:
                reps = [self.chooser.integer(1, 2) for _ in shape]
                return self._call("tile", x, reps) if self._fits(*shape, *reps) else None
            case 3:
                size = self.chooser.integer(1, max(n, 1))
                return self._call("unfold", x, axis, size, self.chooser.integer(1, 3)) if self._fits(size, *shape) else None
            case 4:
                widths = [(self.chooser.integer(0, 2), self.chooser.integer(0, 2)) for _ in shape]
                if not self._fits(*(n + a + b for n, (a, b) in zip(shape, widths, strict=True))):
                    return None
                return self._call("pad", x, widths, mode=self.chooser.pick(("reflect", "replicate", "circular", "constant")))
            case _:
                return self._call("diff", x, self.chooser.integer(1, 2), axis)

    def _parts(self) -> TensorView | None:
        x = self._operand()
        if x.ndim == 0:
            return None
        axis = self._axis(x)
        match self.chooser.integer(0, 4):
            case 0:
                return self._call("chunk", x, self.chooser.integer(1, 3), axis)
            case 1:
                return self._call("split", x, sections=self.chooser.integer(1, 3), axis=axis)
            case 2 if x.ndim > 1:
                return self._call("diagonal", x, self.chooser.integer(-1, 1), axis, (axis + 1) % x.ndim)
            case 3:
                return self._call("var_mean", x, axis, keepdims=self.chooser.chance(50))
            case _:
                return self._call("narrow", x, axis, 0, self.chooser.integer(0, max(self.shape(x)[axis], 1)))

    def _made(self) -> TensorView | None:
        """An op without operands."""
        x = self._operand()
        match self.chooser.integer(0, 4):
            case 0:
                return self._call("arange", self.chooser.integer(1, 9), dtype=self.chooser.pick((tf.int32, tf.int64, tf.float32)))
            case 1:
                return self._call("full", [self.chooser.pick(self.options.sizes) for _ in range(self.chooser.integer(0, 2))], self.chooser.integer(0, 3))
            case 2:
                return self._call(self.chooser.pick(("zeros_like", "ones_like")), x)
            case 3:
                return self._call("arange", x.shape[-1]) if x.ndim and isinstance(x.shape[-1], Const) else None
            case _:
                return self._call("one_hot", x, self.chooser.integer(1, 4)) if x.dtype.is_integer and self._fits(4, *self.shape(x)) else None

    def _masked(self) -> TensorView | None:
        x = self._operand()
        if x.ndim > 1 and self.chooser.chance(60):
            return self._call(self.chooser.pick(("tril", "triu")), x, self.chooser.integer(-1, 1))
        mask = self._partner(x)
        return None if mask is None else self._call("masked_fill", x, self._call("cast", mask, tf.bool_), 1)

    def _contraction(self) -> TensorView | None:
        """Products other than of two matrices: of vectors, of batches, of three factors, over several axes."""
        n, m, k, b = (self.chooser.pick((1, 2, 3, 4, 5, 7)) for _ in range(4))
        dtype = self.chooser.pick((tf.float32, tf.bfloat16, tf.float16, tf.float64, tf.int32))
        terms, shapes = self.chooser.pick(
            (
                ("i,i->", ([k], [k])),
                ("i,j->ij", ([n], [m])),
                ("bik,bkj->bij", ([b, n, k], [b, k, m])),
                ("bik,bjk,bj->bi", ([b, n, k], [b, m, k], [b, m])),
                ("bik,bij->kj", ([b, n, k], [b, n, m])),
                ("bik,kj->bji", ([b, n, k], [k, m])),
                ("ikb,kjb->bij", ([n, k, b], [k, m, b])),
            )
        )
        return self._call("einsum", terms, *(self.new_input(list(shape), dtype) for shape in shapes))

    def _tiles(self) -> TensorView | None:
        """A product for tensor cores, with a view beside it."""
        m, n, k = (self.chooser.pick(TILES) for _ in range(3))
        dtype = self.chooser.pick((tf.bfloat16, tf.float16, tf.float32))
        if m * n * k > MOST:
            return None
        a, b = self.new_input([m, k], dtype), self.new_input([k, n], dtype)
        if self.chooser.chance(40):
            a = self._call("relu", self._call("flip", a, self.chooser.integer(0, 1)))
        if self.chooser.chance(30):
            b = self._call("transpose", self.new_input([n, k], dtype))
        made = self._call("matmul", a, b)
        match self.chooser.integer(0, 3):
            case 0:
                made = self._call("reshape", made, [m, 2, n // 2])
            case 1:
                made = self._call("transpose", made)
            case 2:
                made = self._call("slice", made, [0, 0], [m // 2, n], [1, 1])
            case _:
                pass
        return made

    def _turned(self) -> TensorView | None:
        """A view of a computed tensor that permutes or merges axes."""
        x = self._operand()
        if x.ndim < 2:
            return None
        axis, other = self._axis(x), self._axis(x)
        match self.chooser.integer(0, 3):
            case 0:
                return self._call("swapaxes", x, axis, other)
            case 1:
                return self._call("moveaxis", x, axis, other)
            case 2:
                return self._call("flatten", x)
            case _:
                return self._call("reshape", self._call("transpose", x) if x.ndim == 2 else x, [-1])


def case(seed: int, options: CaseOptions = ANYTHING) -> Case:
    """The fusion of a seed, and its arguments."""
    chooser: Chooser = RandomChooser(seed)
    recorder = Recorder()
    graph = AnyGraph(chooser, options, recorder)
    graph.grow()
    program, fusion = recorder.program(), recorder.fusion
    return Case(program, program, graph.sizes, seed, fusion, fusion, Outcome(None, None, None), options)


def check(fusion: tf.Fusion, arguments: Sequence[Any], seed: int = 0) -> Segmentation:
    """Build kernels as :func:`taskfuse.compile` does, prove each, and compare their results with NumPy's in modular values.

    Raises:
        AssertionError: a proof fails, or results differ.
        TaskfuseError: compilation fails.
    """
    runs: dict[tf.Fusion, Executable] = {}

    def trial(scheduled: tf.Fusion, schedule: Schedule) -> None:
        run = one_kernel(scheduled, "sim", schedule=schedule)
        check_open(run, scheduled, assumed(scheduled, None, DEFAULT))
        runs[scheduled] = run

    found = choose_segments(fusion, trial=trial)
    assert INTERNAL not in found.explain(), found.explain()
    values: dict[str, Any] = dict(zip(fusion.arguments, arguments, strict=True))
    sizes = bind_shapes(fusion, [np.shape(a) for a in arguments[: len(fusion.inputs)]], arguments[len(arguments) - len(fusion.integers) :])
    for step in found.steps:
        values |= _results(found.whole_fusion or fusion, step.fusion, runs[step.fusion], step.views, values, sizes, seed)
    for tv, wanted in zip(fusion.outputs, evaluate(fusion, arguments, MODULAR), strict=True):
        assert np.array_equal(values[tv.name], wanted), f"{tv.name} is wrong:\n{found.explain()}"
    return found


def check_extents(found: Case) -> None:
    """Compile a fusion of symbolic extents, call it with its own and with extents of 0 and 1, and compare the results with NumPy's.

    Raises:
        AssertionError: results differ, or one of the two refuses the arguments.
        TaskfuseError: compilation fails, or a kernel.
    """
    fusion = found.fusion
    run = tf.compile(fusion, "sim", specialize=False)
    for values in (tuple(found.sizes.values()), *product((0, 1), repeat=len(found.sizes))):
        sizes = dict(zip(found.sizes, values, strict=True))
        if not all(d.admits(sizes[name], sizes) for name, d in fusion.dims.items()):
            continue
        arguments = replace(found, sizes=sizes).arguments()
        with np.errstate(all="ignore"):
            for tv, ours, wanted in zip(fusion.outputs, run(*arguments), fusion.evaluate(*arguments), strict=True):
                assert np.shape(ours) == np.shape(wanted), f"{tv.name} has another shape at {sizes}"
                a, b = (np.asarray(x, np.float64) for x in (ours, wanted))
                assert np.allclose(a, b, rtol=ROUNDED, atol=ROUNDED, equal_nan=True), f"{tv.name} is wrong at {sizes}:\n{run}"


def _results(
    whole: tf.Fusion, part: tf.Fusion, run: Executable, views: Sequence[str], values: Mapping[str, Any], sizes: Mapping[str, int], seed: int
) -> dict[str, Any]:
    """The outputs of one kernel, simulated on the arrays computed so far."""
    known = dict(values) | {name: StridedView(whole, name, "sim").of(values, sizes, None, 0) for name in views}
    given = [known[name] for name in part.arguments]
    if not run.certificate.is_proved:  # an argument with holes: the extents of the call fill them
        shapes = {tv.name: np.shape(array) for tv, array in zip(part.inputs, given, strict=False)}
        verify(run.kernel, bind_symbols(run.kernel, shapes, {}, {name: known[name] for name in part.integers})).require()
    made = simulate(run.kernel, given, seed=seed, values=MODULAR)
    _check_in_place(run.kernel, given, made, seed)
    return dict(zip([tv.name for tv in part.outputs], made, strict=True))


def _check_in_place(kernel: Kernel, given: Sequence[Any], made: Sequence[Any], seed: int) -> None:
    """If a kernel is proved correct for an output in the array of an input, its results are the same there. Raises :class:`AssertionError`."""
    for output in kernel.outputs:
        source = next((p for p in kernel.inputs if (p.dtype, p.shape) == (output.dtype, output.shape)), None)
        if source is None:
            continue
        params = tuple(replace(p, into=source.name) if p is output and isinstance(p, TensorParam) else p for p in kernel.params)
        aliased = replace(kernel, params=params)
        if aliased.verify().is_proved:
            again = simulate(aliased, given, seed=seed, values=MODULAR)
            assert all(map(np.array_equal, again, made)), f"{output.name} is wrong if it is written into {source.name}:\n{aliased}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the cases of consecutive seeds. Returns the exit status: 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="python -m taskfuse.testing.anything", description="Compile random fusions of all ops.")
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 100), metavar=("FROM", "TO"), help="the first, and the end (default: 0 100)")
    parser.add_argument("--extents", action="store_true", help="symbolic extents, called at 0 and 1, too")
    parser.add_argument("--slow", type=float, default=30.0, metavar="S", help="seconds from which on a case is printed (default: 30)")
    options = parser.parse_args(arguments)
    failures = 0
    for seed in range(*options.seeds):
        begun = time.perf_counter()
        found = case(seed, SYMBOLIC if options.extents else ANYTHING)
        try:
            if options.extents:
                check_extents(found)
            else:
                check(found.fusion, found.arguments(), seed)
        except Exception:
            failures += 1
            again = f"--seeds {seed} {seed + 1}{' --extents' * options.extents}"
            print(f"FAILED python -m taskfuse.testing.anything {again}\n{found.report()}{traceback.format_exc()}", flush=True)
        seconds = time.perf_counter() - begun
        if seconds > options.slow:
            print(f"seed {seed}: {seconds:.0f} s", flush=True)
    print(f"{options.seeds[1] - options.seeds[0]} cases, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

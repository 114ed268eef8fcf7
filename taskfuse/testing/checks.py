"""The properties that every random case must have, and the error that names the failed property and the failing program."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from taskfuse.check import Layer, Verdict, verify
from taskfuse.check.rewrites.instances import WIDE, differences
from taskfuse.check.rewrites.verify import rewritings
from taskfuse.cuda.nvrtc import CompileOptions, compile_ptx
from taskfuse.cuda.source import emit
from taskfuse.errors import CallError, SimulationError, TaskfuseError, shown
from taskfuse.ir.evaluate import evaluate, evaluate_tensors
from taskfuse.ir.expr import Reduction, Scan, reads
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.parser import parse_fusion
from taskfuse.ir.signatures import checked_first
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.values import MODULAR, NATIVE, Values
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.location import caller
from taskfuse.lowering import LoweringOptions, lower
from taskfuse.sim import Interleaving, simulate
from taskfuse.sim.interleaving import policy
from taskfuse.sim.launch import prepare
from taskfuse.testing.case import Case
from taskfuse.testing.machine import find_fault
from taskfuse.testing.program import REFUSALS
from taskfuse.testing.ptx.compare import compare

Array = NDArray[Any]
T = TypeVar("T")


class Property(Enum):
    """A checked property; its value is the text of reports."""

    LOWERS = "scheduling calls and lowering succeed or refuse, never with another error"
    VERIFIES = "the kernel obeys the rules of kernel IR"
    PROVES = "the static proof accepts the kernel or says that it cannot, and does not refute it"
    SCHEDULED = "the schedule leaves the math as it was"
    SIMULATES = "the simulated kernel gives what NumPy gives, under every interleaving"
    SAFE = "whatever a table holds, no access leaves its tensor, and the kernel ends"
    ORDERS = "every order of the code, with or without reuse of Shared memory, gives the same results"
    FUSION_TEXT = "the fusion's text is read back as the same fusion"
    KERNEL_TEXT = "the kernel's text is read back as the same kernel"
    UNCONTRADICTED = "the second machine finds no fault in a kernel that is proved"
    NATIVE = "ordinary numbers give what NumPy gives"
    PTX = "the CUDA text compiles, and its PTX does what kernel IR says, thread by thread"


class CaseStanding(Enum):
    """The verdict of the static proof on a kernel. AT: proved for the extents of its case only."""

    PROVED = "proved"
    AT = "proved at extents"
    OUTSIDE = "outside the model"


@dataclass(frozen=True, slots=True)
class CaseProof:
    """The result of the static proof on a case.

    Attributes:
        standing: ``None`` if the proof did not run or nothing was lowered.
        gap: the first unproved obligation, with its layer: at the extents of the case, or for all extents if the case's own are proved.
        long: runs on the simulator that exceeded the limit of steps, and decided nothing.
    """

    standing: CaseStanding | None = None
    gap: str = ""
    long: int = 0


def proof(kernel: Kernel, sizes: Mapping[str, int]) -> CaseProof:
    """The verdict of the static proof on a kernel: for all extents, else for ``sizes``. If only values are unproved
    for all extents, only they are proved for ``sizes``."""
    for_all = verify(kernel)
    if for_all.is_proved:
        return CaseProof(CaseStanding.PROVED)
    here = verify(kernel, sizes) if sizes else for_all
    values_alone = for_all.open_layers == frozenset((Layer.VALUES,))
    open_ = [o for o in here.argument if o.verdict is not Verdict.PROVED and (o.layer is Layer.VALUES or not values_alone)]
    lacks = next(o for o in open_ or for_all.argument if o.verdict is not Verdict.PROVED)
    return CaseProof(CaseStanding.OUTSIDE if open_ else CaseStanding.AT, f"{lacks.layer.value}: {lacks.reason}")


class CheckError(AssertionError):
    """A case violates a property.

    Attributes:
        case: the case.
        prop: the violated property.
        reason: what happened.
    """

    def __init__(self, case: Case, prop: Property, reason: str) -> None:
        self.case = case
        self.prop = prop
        self.reason = reason
        super().__init__(f"{prop.value}: {reason}\n\n{case.report()}")


@dataclass(frozen=True, slots=True)
class Effort:
    """Which checks run, and how often.

    Attributes:
        interleavings: number of simulator interleavings per case; the seed of the case picks them.
        orders: number of other statement orders to lower and run; every other one also reuses Shared memory where lifetimes allow.
        texts: check that the texts of the fusion and the kernel parse back.
        prove: run the static proof.
        native: also compare ordinary numbers (only cases with ``options.exact``, in which every sum is exact).
        ptx: compile the CUDA source and compare its PTX with the kernel (needs NVRTC).
        machine: run proved cases whose seeds are multiples of this number on the second machine; 0: none.
    """

    interleavings: int = 2
    orders: int = 1
    texts: bool = True
    native: bool = True
    prove: bool = False
    ptx: bool = False
    machine: int = 8


FULL = Effort(interleavings=len(Interleaving), orders=3, prove=True, machine=1)
DIFFERENT = "threads write different values to one element"
"""The simulator's error for two tiles that share a row, as they may if offsets fall."""
STEPS_OF_A_RUN = 2_000_000
"""Limit of statements that all threads execute in a run on the simulator."""
STEPS = 20_000
"""Limit of loop iterations on the second machine."""


@checked_first
def check_case(case: Case, effort: Effort | None = None) -> CaseProof:
    """Check every property of a case that lowers; a refused case passes without checks. Returns the result of the static proof.

    Results must be equal. In modular values (:data:`taskfuse.MODULAR`) sums and products are exact and every other function
    is a hash, so an order of evaluation neither hides a wrong value nor changes a right one. With ``native``, exact cases also run on
    ordinary numbers, unless a sum could exceed the integers that its dtype represents exactly.

    Raises:
        CallError: sizes of the case lack a dimension, or have one with a value that its facts exclude.
        CheckError: the case violates a property (the first one found).
    """
    sizes, dims = case.sizes, case.fusion.dims
    if not all(name in sizes and d.admits(sizes[name], sizes) for name, d in dims.items()):
        help = f"give a value to each of {', '.join(f'{d.name} ({d.allowed})' for d in dims.values()) or 'no dimension'}"
        raise CallError(call="check_case", reason=f"the case has sizes {shown(dict(sizes))}", help=help, location=caller())
    return _Checks(case, effort or Effort()).run()


class _Checks:
    def __init__(self, case: Case, effort: Effort) -> None:
        self.case = case
        self.effort = effort
        self.arguments = case.arguments()
        self.long = 0

    def run(self) -> CaseProof:
        case, effort = self.case, self.effort
        crash = case.outcome.crash
        if crash is not None:
            raise self._fail(Property.LOWERS, f"{type(crash).__name__}: {crash}") from crash
        if case.kernel is None:
            return CaseProof()
        kernel = case.kernel
        self._guard(Property.VERIFIES, kernel.check_ir)
        proof = self._prove(kernel) if effort.prove else CaseProof()
        wanted = self._evaluate(case.plain, MODULAR, Property.SCHEDULED)
        own = self._evaluate(case.fusion, MODULAR, Property.SCHEDULED)
        if self._guard(Property.SCHEDULED, lambda: _holds_in_real_numbers(kernel)):
            self._alike(self._evaluate(case.fusion, WIDE, Property.SCHEDULED), self._evaluate(case.plain, WIDE, Property.SCHEDULED))
            wanted = own
        self._equal(Property.SCHEDULED, own, wanted, "the scheduled fusion evaluates otherwise")
        for k in range(effort.interleavings):
            if self.long:
                break  # so are its other runs
            seed = case.seed + k * 0x9E3779B1
            self._simulate(Property.SIMULATES, kernel, seed % 2**32, self._kind(k), MODULAR, wanted)
        if not self.long:
            self._any_table(kernel)
        for k in range(0 if self.long else effort.orders):
            self._order(case.seed % 1000 + k, self._kind(effort.interleavings + k), wanted)
        if effort.texts:
            self._texts(kernel)
        if effort.machine and case.seed % effort.machine == 0:
            self._contradict(kernel)
        if effort.native and case.options.exact and not self.long:
            self._native(kernel)
        if effort.ptx:
            self._compile(kernel)
        return replace(proof, long=self.long)

    def _kind(self, run: int) -> Interleaving:
        """The interleaving of a run of the case: each run has another one."""
        kinds = tuple(Interleaving)
        return kinds[(self.case.seed + run) % len(kinds)]

    def _contradict(self, kernel: Kernel) -> None:
        prop = Property.UNCONTRADICTED
        if self._guard(prop, lambda: verify(kernel).is_proved):
            found = self._guard(prop, lambda: find_fault(kernel, [self.case.sizes], 1, STEPS))
            if found is not None:
                raise self._fail(prop, str(found))

    def _compile(self, kernel: Kernel) -> None:
        def difference() -> str | None:
            source = emit(kernel)
            return compare(kernel, source, compile_ptx(source.text, source.name, CompileOptions(arch="sm_90a"))).difference

        found = self._guard(Property.PTX, difference)
        if found is not None:
            raise self._fail(Property.PTX, found)

    def _fail(self, prop: Property, reason: str) -> CheckError:
        return CheckError(self.case, prop, reason)

    def _guard(self, prop: Property, action: Callable[[], T]) -> T:
        """``action()``; an exception becomes a violation of ``prop``."""
        try:
            return action()
        except CheckError:
            raise
        except Exception as error:
            raise self._fail(prop, f"{type(error).__name__}: {error}") from error

    def _evaluate(self, fusion: Fusion, values: Values, prop: Property) -> tuple[Array, ...]:
        return self._guard(prop, lambda: evaluate(fusion, self.arguments, values))

    def _equal(self, prop: Property, found: Sequence[Array], wanted: Sequence[Array], how: str) -> None:
        for tv, a, b in zip(self.case.fusion.outputs, found, wanted, strict=True):
            if a.dtype != b.dtype or a.shape != b.shape:
                raise self._fail(prop, f"{how}: {tv.name} is {a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}")
            wrong = np.argwhere((a != b) & ~((a != a) & (b != b)))
            if len(wrong):
                index = tuple(int(k) for k in wrong[0])
                shown = f"{len(wrong)} of {a.size} elements of {tv.name} are wrong, the first at {list(index)}: {a[index]}, not {b[index]}"
                raise self._fail(prop, f"{how}: {shown}")

    def _alike(self, found: Sequence[Array], wanted: Sequence[Array]) -> None:
        """Results in float64 are those of the fusion before it was scheduled, but for rounding: what the proof says of real numbers, computed."""
        for tv, a, b in zip(self.case.fusion.outputs, found, wanted, strict=True):
            wrong = differences(a, b)
            if len(wrong):
                index = tuple(int(k) for k in wrong[0])
                raise self._fail(Property.SCHEDULED, f"in float64, element {list(index)} of {tv.name} of the scheduled fusion is {a[index]}, not {b[index]}")

    def _simulate(self, prop: Property, kernel: Kernel, seed: int, interleaving: Interleaving, values: Values, wanted: Sequence[Array]) -> None:
        how = f"simulate(seed={seed}, interleaving={interleaving.value}, values={values.name})"

        def run() -> tuple[Array, ...] | None:
            try:
                return simulate(kernel, self.arguments, seed=seed, interleaving=interleaving, values=values, max_steps=STEPS_OF_A_RUN)
            except TaskfuseError as error:
                if self._is_long(error):
                    return None
                raise self._fail(prop, f"{how}: {type(error).__name__}: {error}") from error

        found = self._guard(prop, run)
        if found is not None:
            self._equal(prop, found, wanted, how)

    def _is_long(self, error: TaskfuseError) -> bool:
        """Whether a run ended at the limit of steps. Loops have bounds and a deadlock is told as one, so such a run is long, not endless."""
        is_long = f"more than {STEPS_OF_A_RUN} steps" in str(error)
        self.long += is_long
        return is_long

    def _prove(self, kernel: Kernel) -> CaseProof:
        found = self._guard(Property.PROVES, lambda: proof(kernel, self.case.sizes))
        for sizes in () if found.standing is CaseStanding.PROVED else (None, self.case.sizes):
            certificate = self._guard(Property.PROVES, partial(verify, kernel, sizes))
            if certificate.verdict is Verdict.REFUTED:
                raise self._fail(Property.PROVES, f"refuted: {certificate}")
        return found

    def _any_table(self, kernel: Kernel) -> None:
        """Run a kernel on tables that break their promises. Its results are unspecified; where nothing was stored, memory holds something."""
        arguments = self.case.hostile_arguments()
        if arguments is None:
            return
        seed = self.case.seed % 2**32

        def run() -> None:
            launch = prepare(kernel, arguments, MODULAR, None)
            machine = launch.machine(policy(tuple(Interleaving)[seed % len(Interleaving)], seed), STEPS_OF_A_RUN)
            for store in launch.globals.values():
                if store.valid is not None:
                    store.valid.fill(store.full)
            try:
                machine.run(launch.blocks(machine), launch.number_of_blocks)
            except SimulationError as error:
                if DIFFERENT not in str(error) and not self._is_long(error):
                    raise

        self._guard(Property.SAFE, run)

    def _order(self, seed: int, kind: Interleaving, wanted: Sequence[Array]) -> None:
        options = LoweringOptions(order_seed=seed, shared_limit=0 if seed % 2 else LoweringOptions().shared_limit)
        try:
            kernel = lower(self.case.fusion, options)
        except REFUSALS:
            return
        except Exception as error:
            raise self._fail(Property.ORDERS, f"{options}: {type(error).__name__}: {error}") from error
        self._simulate(Property.ORDERS, kernel, seed, kind, MODULAR, wanted)

    def _texts(self, kernel: Kernel) -> None:
        text = str(self.case.fusion)
        again = self._guard(Property.FUSION_TEXT, lambda: str(parse_fusion(text)))
        if again != text:
            raise self._fail(Property.FUSION_TEXT, _difference(again, text))
        lines = str(kernel)
        found = self._guard(Property.KERNEL_TEXT, lambda: parse_kernel(lines))
        if found != kernel:
            raise self._fail(Property.KERNEL_TEXT, _difference(str(found), lines))

    def _native(self, kernel: Kernel) -> None:
        if not self._guard(Property.NATIVE, lambda: _is_exact(self.case.plain, evaluate_tensors(self.case.plain, self.arguments, NATIVE))):
            return
        wanted = self._evaluate(self.case.plain, NATIVE, Property.NATIVE)
        kind = self._kind(self.effort.interleavings + self.effort.orders)
        self._simulate(Property.NATIVE, kernel, self.case.seed % 2**32, kind, NATIVE, wanted)


def _holds_in_real_numbers(kernel: Kernel) -> bool:
    """Whether the math of a kernel is proved to be what was written, and only in real numbers: schedulers that make cascades change words of modular values."""
    found = rewritings(kernel)
    proved = all(o.verdict is Verdict.PROVED for o in found.obligations) and not found.assumptions
    return proved and any("in real numbers" in o.reason for o in found.obligations)


def _is_exact(fusion: Fusion, tensors: Mapping[TensorView, Array]) -> bool:
    """True if no partial sum of integers, in any order, can leave the integers that floats hold exactly."""
    for expr in fusion.exprs():
        if not isinstance(expr, Reduction | Scan) or not expr.output.dtype.is_float or not tensors[expr.output].size:
            continue
        operands = [tensors[r.tensor] for r in reads(expr) if tensors[r.tensor].size]
        bound = math.prod(float(np.abs(a.astype(np.float64)).max()) for a in operands) * max((a.size for a in operands), default=1)
        if not bound <= 2.0**expr.output.dtype.compute.precision:
            return False
    return True


def _difference(found: str, wanted: str) -> str:
    for k, (a, b) in enumerate(zip(found.splitlines(), wanted.splitlines(), strict=False), 1):
        if a != b:
            return f"line {k} is\n  {a}\nnot\n  {b}"
    return "the texts are equal, what they describe is not" if found == wanted else "one text is longer"

"""``tf.compile``: a fusion as a function on arrays, scheduled automatically if it has no schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from taskfuse.cuda.present import present
from taskfuse.errors import UnsupportedError, shown
from taskfuse.ir.fusion import Fusion, as_fusion
from taskfuse.ir.signatures import at_least, checked_first
from taskfuse.kir import Kernel
from taskfuse.location import caller
from taskfuse.lowering import LoweringOptions, check_options
from taskfuse.lowering.plan_text import dumper
from taskfuse.options import Backend, read_options
from taskfuse.runtime.admission import admitted
from taskfuse.runtime.automatic import as_scheduled
from taskfuse.runtime.chain import Chain, link
from taskfuse.runtime.executable import Executable
from taskfuse.runtime.kernel import Maker, check_backend
from taskfuse.runtime.memory_order import in_given_order, in_memory_order, is_plain
from taskfuse.runtime.result_views import Viewed, bases
from taskfuse.runtime.results import Arranged, Nothing
from taskfuse.runtime.specialization import specialized
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.segment import SegmentedFusion
from taskfuse.schedule.split_products import EXACT, split_products
from taskfuse.schedule.widen import widened
from taskfuse.schedulers.budget import SECONDS
from taskfuse.schedulers.schedule import Sizes
from taskfuse.target import Target, as_target


@partial(checked_first, but=("fusion", "backend", "schedule", "numerics", "float32_products", "sizes", "target", "options"))
def compile(
    fusion: Fusion | SegmentedFusion | Kernel,
    backend: Backend = "auto",
    *,
    schedule: Literal["auto"] | None = "auto",
    numerics: Literal["eager", "wide"] = "eager",
    float32_products: Literal["ieee", "bf16x3", "bf16x6", "bf16x9"] = "ieee",
    sizes: Mapping[str, int] | None = None,
    specialize: bool = True,
    budget: float = SECONDS,
    target: Target | str | None = None,
    arch: str | None = None,
    fast_math: bool = False,
    debug: bool = False,
    unsafe: bool = False,
    cache: bool = True,
    options: LoweringOptions | None = None,
) -> Executable:
    """Lower ``fusion``, prove its kernel, and return a function on arrays. The first call that needs CUDA loads it and compiles machine code; if
    there is a GPU, automatic schedules are compiled at once.

    A fusion without any scheduling call is copied and scheduled automatically (docs/automatic.md): by one scheduler, or as several kernels that
    run one after another. The result's ``schedule`` has the choice, the reasons, and the calls as editable code. A schedule that cannot be lowered,
    or whose kernel is not proved or does not fit the GPU, is replaced by the next best.

    The kernel is proved for all extents (docs/proof.md). If that proof has a gap, and no counterexample is found, the
    kernel is proved for the extents of each call. An automatic schedule is made again for extents of 0, and for extents at which this proof fails.

    Args:
        fusion: the fusion, a segmented one, or a kernel; it is not changed.
        backend: ``"auto"``: arrays on a GPU run there, NumPy arrays in the simulator (``TASKFUSE_BACKEND`` overrides this); ``"cuda"``: on the
            GPU; ``"sim"``: in the simulator.
        schedule: ``None``: lower a fusion as it is, even without any scheduling call.
        numerics: ``"eager"``: every function of 16-bit floats rounds its result, as in a framework that runs them one after another; ``"wide"``: values
            between functions stay float32, with one rounding at the end (:func:`taskfuse.widened`). Ignored for kernels and segmented fusions.
        float32_products: ``"ieee"``: products of float32 matrices round as float32 does; others: as sums of three, six or nine products of bfloat16 on tensor
            cores, with the errors given at :func:`taskfuse.split_products`. Ignored for kernels and segmented fusions.
        sizes: values of the fusion's dimensions for the cost models of automatic schedules; the kernels run with any. Extents near them are no reason to
            specialize.
        specialize: schedule again at a call, for the divisors and bounds of its extents (docs/automatic.md); if false, the kernels for all extents run
            all calls for which they are proved.
        budget: seconds for the search for an automatic schedule of several kernels, computed from its work, so that the result is the same on every machine;
            at its end the best segments so far are used. On a slower machine it ends after as many seconds of the processor.
        target: the GPU that automatic schedules are chosen for and whose limits kernels keep: a :class:`taskfuse.Target`, its name (``"H100"``) or its
            architecture; by default the GPU in this machine, or an H200 without one.
        arch: the architecture to compile for, such as ``"sm_90a"``; by default that of the GPU that runs the kernel.
        fast_math: approximate division, square root and functions; subnormals become zero.
        debug: bound every wait, and raise :class:`HangError` at a timeout; a call then waits for its kernel.
        unsafe: skip the proof; errors about registers of the kernel become warnings.
        cache: read and write decisions on disk (docs/cuda.md, "The cache"); ignored for debug and unsafe builds.
        options: options of lowering.

    Raises:
        CallError: an argument of another type, or a negative budget.
        ProofError: the kernel is not proved; the notes give a counterexample, or the obligations outside the model.
        UnsupportedError: ``fusion`` is not a fusion, a segmented fusion or a kernel; the backend, target or ``schedule`` does not exist; ``sizes`` names an
            unknown dimension or gives an impossible extent; there are no outputs; or an op has no automatic schedule.
        LoweringError: see :func:`lower`.
        VerifyError: a kernel that breaks a rule of kernel IR.
        OptionError: an unknown environment variable of taskfuse.
    """
    if schedule not in ("auto", None):
        help = "use 'auto', or None to take the fusion as it is"
        raise UnsupportedError(what=f"schedule {shown(schedule)}", reason="there is no such choice", help=help, location=caller())
    if numerics not in ("eager", "wide"):
        raise UnsupportedError(what=f"numerics {shown(numerics)}", reason="there is no such choice", help="use 'eager' or 'wide'", location=caller())
    if numerics == "wide" and isinstance(fusion, Fusion):
        fusion = widened(fusion)
    if float32_products != EXACT and isinstance(fusion, Fusion):
        fusion = split_products(fusion, float32_products)
    at_least("compile", 0, budget=budget)
    dumper(read_options())  # the search would take an error about settings for a reason against a schedule
    machine = present() if target is None else as_target(target)
    options = options or LoweringOptions(target=machine)
    check_backend(backend)
    check_options(options)
    make = Maker(backend, arch, fast_math, debug, unsafe, cache, options)
    storing = _Storing(make, schedule, sizes, specialize, budget, machine)
    match fusion:
        case SegmentedFusion(fusion=whole, segments=parts):
            Sizes(whole, sizes, machine)
            extents = [{name: size for name, size in (sizes or {}).items() if name in part.dims} for part in parts]
            return Chain(whole, [link(part, replace(storing, sizes=own)(part)) for part, own in zip(parts, extents, strict=True)])
        case Fusion():
            without = None if storing.takes_as_it_is(fusion) else bases(fusion)
            if without is None:
                return storing(fusion)
            run = storing(without.fusion) if without.fusion.outputs else Nothing(without.fusion, backend)
            return Viewed(copy_fusion(fusion)[0], run, without.sources, storing)
        case Kernel():
            return make(fusion)
        case _:
            return as_scheduled(as_fusion(fusion, "tf.compile"), make)


@checked_first
def as_stored(fusion: Fusion) -> Fusion:
    """A copy whose outputs are what the kernels of ``tf.compile(fusion)`` store, in the order of memory: it is what ``run.schedule.code`` schedules.

    It differs from ``fusion`` if results are views of other tensors, are written into an argument, have strides, or are given twice.
    """
    without = bases(fusion)
    whole = copy_fusion(fusion)[0] if without is None else without.fusion
    wishes = None if is_plain(whole) else in_memory_order(whole)
    return whole if wishes is None else wishes.fusion


@dataclass(frozen=True, slots=True)
class _Storing:
    """Makes executables of fusions that store all results, with the settings of one :func:`compile`; see there."""

    make: Maker
    schedule: Literal["auto"] | None
    sizes: Mapping[str, int] | None
    specialize: bool
    budget: float
    target: Target

    def takes_as_it_is(self, fusion: Fusion) -> bool:
        """Whether it keeps the schedule that it has."""
        return self.schedule is None or fusion.has_schedule

    def __call__(self, fusion: Fusion) -> Executable:
        if fusion.results and not fusion.outputs:
            return Arranged(copy_fusion(fusion)[0], Nothing(fusion, self.make.backend), {})
        is_scheduled = self.takes_as_it_is(fusion)
        wishes = None if is_plain(fusion) else in_given_order(fusion) if is_scheduled else in_memory_order(fusion)
        whole = fusion if wishes is None else wishes.fusion
        if is_scheduled:
            run = as_scheduled(whole, self.make)
        else:
            make = self.make if wishes is None else replace(self.make, into=tuple(wishes.into.items()))
            run = admitted(whole, make, sizes=self.sizes, target=self.target, budget=self.budget)
            run = specialized(whole, make, run, self.sizes, self.target) if self.specialize and fusion.dims else run
        return run if wishes is None else Arranged(copy_fusion(fusion)[0], run, wishes.orders)

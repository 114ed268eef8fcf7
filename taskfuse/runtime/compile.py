"""``tf.compile``: a fusion as a function on arrays; scheduled automatically where its author left that open."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

from taskfuse.cuda.present import present
from taskfuse.errors import UnsupportedError
from taskfuse.ir.fusion import Fusion, as_fusion
from taskfuse.kir import Kernel
from taskfuse.location import caller
from taskfuse.lowering import LoweringOptions
from taskfuse.options import Backend
from taskfuse.runtime.chain import Chain, link, planned
from taskfuse.runtime.executable import Executable
from taskfuse.runtime.kernel import one_kernel
from taskfuse.runtime.specialization import specialized
from taskfuse.schedule.cut import Cut
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.segmenter import BUDGET
from taskfuse.target import Target, as_target


def compile(
    fusion: Fusion | Cut | Kernel,
    backend: Backend = "auto",
    *,
    schedule: Literal["auto"] | None = "auto",
    sizes: Mapping[str, int] | None = None,
    specialize: bool = True,
    budget: float = BUDGET,
    target: Target | str | None = None,
    arch: str | None = None,
    fast_math: bool = False,
    debug: bool = False,
    unsafe: bool = False,
    options: LoweringOptions | None = None,
) -> Executable:
    """Lower ``fusion``, prove its kernel, and return a function on arrays. CUDA is loaded, and machine code made, by the first call that needs them.

    A fusion on which no scheduling call was made is copied and scheduled automatically (docs/automatic.md): by one scheduler, or cut into several
    kernels that run one after another. What was chosen, why, and the calls to start from are the result's ``schedule``. A schedule of which no kernel can
    be made, or whose kernel is not proved, is dropped for the next best.

    The kernel is proved free of deadlock and race for all extents (docs/proof.md). Where that argument has a gap, and no counterexample is found, it
    is proved for the extents of each call.

    Args:
        fusion: what to run, a cut of it into several, or a kernel; it is not changed.
        backend: ``"auto"``: arrays on a GPU run there, NumPy arrays in the simulator (``TASKFUSE_BACKEND`` may say otherwise); ``"cuda"``: on the
            GPU; ``"sim"``: in the simulator.
        schedule: ``None`` takes a fusion as it is, even without any scheduling call.
        sizes: values of the fusion's dimensions that the cost models of automatic schedules assume; the kernels run with all.
        specialize: schedule automatically again, at a call, for what its extents have that others lack (docs/automatic.md); false: the kernels for
            all extents run all calls.
        budget: seconds that the search for an automatic schedule of several kernels may take; then it ends with the best that it has.
        target: the GPU that automatic schedules are chosen for and whose limits kernels keep: a :class:`taskfuse.Target`, its name (``"H100"``) or its
            architecture; by default the one in this machine, an H200 if there is none.
        arch: what machine code is made for, such as ``"sm_90a"``; by default the GPU that runs it.
        fast_math: approximate division, square root and functions; subnormals become zero.
        debug: bound every wait and report it by :class:`HangError` if it takes too long; a call then waits for its kernel.
        unsafe: take the kernel as it is, without a proof; what the compiler says of its registers is a warning then.
        options: how to lower.

    Raises:
        ProofError: the kernel may deadlock or race; the notes are a counterexample, or say what is outside the model.
        UnsupportedError: what is no fusion, cut or kernel; a backend, a target or a choice of ``schedule`` that does not exist; ``sizes`` of what is no
            dimension or no extent; no outputs; or an op that has no automatic schedule.
        LoweringError: see :func:`lower`.
        VerifyError: a kernel that breaks a rule of kernel IR.
        OptionError: an environment variable of taskfuse that it does not know.
    """
    if schedule not in ("auto", None):
        help = "use 'auto', or None to take the fusion as it is"
        raise UnsupportedError(what=f"schedule {schedule!r}", reason="there is no such choice", help=help, location=caller())
    machine = present() if target is None else as_target(target)
    options = options or LoweringOptions(target=machine)
    make = partial(one_kernel, backend=backend, arch=arch, fast_math=fast_math, debug=debug, unsafe=unsafe, options=options)
    match fusion:
        case Cut(fusion=whole, parts=parts):
            Sizes(whole, sizes, machine)
            extents = [{name: size for name, size in (sizes or {}).items() if name in part.dims} for part in parts]
            settings = {"specialize": specialize, "target": machine, "arch": arch, "fast_math": fast_math, "debug": debug, "unsafe": unsafe, "options": options}
            again = partial(compile, backend=backend, schedule=schedule, budget=budget, **settings)
            return Chain(whole, [link(part, again(part, sizes=own)) for part, own in zip(parts, extents, strict=True)])
        case Fusion() if schedule == "auto" and not fusion.has_schedule:
            run = planned(fusion, make, sizes=sizes, target=machine, budget=budget)
            return specialized(fusion, make, run, sizes, machine) if specialize and fusion.dims else run
        case Kernel():
            return make(fusion)
        case _:
            return make(as_fusion(fusion, "tf.compile"))

"""Which ops of models become fusions, at their real widths, on any machine: graphs are made of tensors without elements, and nothing runs.

    python benchmarks/torch_plans.py [NAME ...] [--train] [--dtype bfloat16] [--small] [--explain] [--compile] [--options JSON]

Columns as those of ``benchmarks/torch_models.py``. ``--compile`` also compiles the fusions, for an H200: how long that takes, and the times that are expected.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from models import Case, named, parser, step

import taskfuse as tf
from taskfuse.schedulers.roofline import roofline
from taskfuse.schedulers.schedule import Sizes
from taskfuse.target import H200
from taskfuse.torch.compilation import GraphReport, copied, ops_of, planned_regions
from taskfuse.torch.decompositions import decompositions
from taskfuse.torch.fates import NUMBER, NodeKind
from taskfuse.torch.in_place import take_copies
from taskfuse.torch.partition import PartitionLimits, planned
from taskfuse.torch.program import GraphProgram
from taskfuse.torch.reports import Report
from taskfuse.torch.settings import Settings


def plan(name: str, case: Case, given: Any) -> None:
    """Print the share of a model's ops that are in fusions, at its real widths: its graphs are made of tensors without elements, and nothing is compiled."""
    from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._subclasses.fake_tensor import FakeTensorMode

    found: list[GraphReport] = []
    fusions = 0

    def planned_only(kind: str) -> Callable[..., Any]:
        def compiler(gm: Any, _: Any) -> Any:
            nonlocal fusions
            made = planned(gm.graph, PartitionLimits("cpu", **{k: v for k, v in json.loads(given.options).items() if k in ("products", "least", "most")}))
            take_copies(gm.graph, made)
            fusions += len(made.regions)
            if given.compile:
                print(f"  {kind}: {compiled(gm)}", flush=True)
            found.append(GraphReport(kind, ops_of(gm, made), frozenset(n.name for n in made.able), {}, 0.0, GraphProgram("", {})))
            return make_boxed_func(gm.forward)

        return compiler

    def chosen(gm: Any, example: Any) -> Any:
        return aot_module_simplified(
            gm,
            example,
            fw_compiler=planned_only("forward"),
            bw_compiler=planned_only("backward"),
            inference_compiler=planned_only("inference"),
            partition_fn=min_cut_rematerialization_partition,
            decompositions=decompositions("cpu"),
            keep_inference_input_mutations=True,
        )

    torch._dynamo.reset()
    with FakeTensorMode(allow_non_fake_inputs=True):
        dtype = getattr(torch, given.dtype)
        torch.set_default_dtype(dtype)
        try:
            model = case[0]()
        finally:
            torch.set_default_dtype(torch.float32)
        inputs = tuple(x.to(dtype=dtype if x.is_floating_point() else None) for x in case[1]())
        step(torch.compile(model, backend=chosen), inputs, given.train)
    r = Report(tuple(found))
    print(f"{name:9} coverage {r.coverage:4.0%} of {r.could:4.0%} fusions {fusions:3}", flush=True)
    if given.explain:
        lines = [(g.kind, op, reason) for g in found for _, op, where, reason in g.ops if where == NodeKind.TORCH.value]
        left = Counter(line for line in lines if line[1] != "getitem" and line[2] != NUMBER)
        for (kind, op, reason), n in left.most_common():
            print(f"  {n:3} {kind} {op}: {reason}")


def compiled(gm: Any) -> str:
    """Compile the fusions of a graph for an H200 in this process, machine code included, each once and without a cache: how long that takes."""
    known: dict[str, Any] = {}
    seconds: list[tuple[float, str]] = []
    us, bound = 0.0, 0.0
    for region in planned_regions(copied(gm), Settings(run="reference"))[1].values():
        text = str(region.fusion)
        start = time.process_time()
        if text not in known:
            known[text] = tf.compile(region.fusion, "cuda", target="H200", cache=False).schedule
            seconds.append((time.process_time() - start, ", ".join(tv.name for tv in region.fusion.outputs)))
        us += known[text].us
        bound += roofline(region.fusion, Sizes(region.fusion, None, H200))
    longest = max(seconds, default=(0.0, ""))
    whole = f"{len(seconds)} different fusions in {sum(s for s, _ in seconds):.1f} s of a processor, the longest in {longest[0]:.1f} s"
    return f"{whole} ({longest[1]}); all fusions {us:.0f} us expected, rooflines {bound:.0f} us"


def main() -> int:
    """Run what the command line says."""
    line = parser(__doc__)
    line.add_argument("--explain", action="store_true", help="also which ops are left to torch, and why")
    line.add_argument("--compile", action="store_true", help="also compile the fusions, for an H200")
    given = line.parse_args()
    for name, case in named(given).items():
        plan(name, case, given)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Every public scheduling call, atom, memory type, parallel type, layout, tile order and scheduler is drawn by random cases, or named here with a reason."""

import inspect
import re
from collections.abc import Iterator
from itertools import product

import pytest

import taskfuse as tf
from taskfuse import ops
from taskfuse.ir.atoms import Atom
from taskfuse.ir.tensor import AxisRef, TensorView
from taskfuse.testing.case import Case, Outcome, seeded_case
from taskfuse.testing.options import OPTIONS, Mix
from tests.random_cases import random_case_of

MATH = "math: drawn by taskfuse/testing/graphs.py"
READS = "says what there is, and changes nothing"
BUILDS = "what ops are built from"
SCHEDULING = ("split", "scatter")
"""Scheduling calls that share their name with an op."""
NOT_DRAWN = {
    **{f"TensorView.{name}": MATH for name in vars(TensorView) if name in ("astype", *ops.__all__) and name not in SCHEDULING},
    **{name: "a name: no kernel depends on it" for name in ("TensorView.set_name", "TensorView.named", "TensorView.label", "Fusion.rename")},
    **{f"TensorView.{name}": READS for name in ("position", "axis")},
    **{f"Fusion.{name}": READS for name in ("facts", "definition", "uses", "tensor", "tensors", "owner", "exprs", "is_view", "evaluate", "check")},
    **{f"Fusion.{name}": READS for name in ("draw", "graph", "task_graph", "written", "replaced_at")},
    **{f"Fusion.{name}": BUILDS for name in ("add_dim", "new_tensor", "define", "call", "add_input", "add_output", "add_scalar", "add_integer")},
    **{f"Fusion.{name}": BUILDS for name in ("set_owner", "remove_unread", "set_written", "restate")},
    "Fusion.partition": "proposes task() and group() calls, which are drawn; tests/schedulers/test_partition.py applies its proposals",
    "Fusion.set_strides": "says how arrays lie; tests/runtime/test_results.py and test_memory_order.py run such fusions",
    "tf.split_products": "makes another fusion before it is scheduled; tests/schedule/test_split_products.py compares kernels with it",
    "tf.widened": "makes another fusion before it is scheduled; tests/schedule/test_widen.py compares kernels with it",
    "tf.SegmentedFusion": "what tf.segment returns",
    "tf.segment": "makes several fusions; tests/schedule/test_segment.py and tests/schedulers/test_auto.py compare them",
    "tf.copy_fusion": "made for every case, to compare with",
    **{f"tf.tiles.{name}": READS for name in ("macro_tiles", "picture", "places", "sort_problems", "table", "triangle", "triangular")},
    "tf.tiles.halves": "the order of triangular products; tests/schedulers and tests/tiles prove such kernels",
    "MemoryType.Cluster": "where lowering puts what crosses CIDx, which is drawn; too rare among a few cases to be sure of",
    "tf.AllocationBuilder": "what tf.allocation returns; drawn with it",
    "tf.schedulers.one_walk": "no random graph has sums over both axes of functions of two products; tests/schedulers/test_one_walk.py runs it",
    "TensorView.gather_as_sum": "for gathers of what a product computes, which no random graph has; tests/schedule/test_gather_as_sum.py proves and runs it",
    "tf.schedulers.tune": "measures what the other schedulers make",
    "ParallelType.Mma": "set by set_atom, not by parallelize",
    "ParallelType.Bulk": "set by set_atom, not by parallelize",
    "tf.atoms.VECTOR": "set by parallelize(Vectorize), which is drawn",
}
"""What no random case calls, and why."""
EACH, STAGES, SOME, MOST = 6, 3, 40, 400
"""Cases of every mix, of those in stages, of two mixes with calls that few take, and of three with rare calls."""
RARE = {
    Mix.FORMS: (2, 3, 6, 8, 9, 12, 22, 37),
    Mix.PROBLEMS: (1, 8, 10, 11, 22, 23),
    Mix.REWRITES: (2, 3, 4, 18, 19),
    Mix.PRODUCTS: (2, 6, 12, 13, 73, 111),
    Mix.AUTOMATIC: (1, 7, 29, 104, 108, 128, 163),
}
"""Seeds that drew what few cases draw: they are asked first, which saves time and decides nothing."""


def public() -> Iterator[str]:
    """The scheduling calls and tables of the library, found in its code."""
    for owner in (TensorView, AxisRef, tf.Task, tf.Group, tf.Fusion):
        yield from (f"{owner.__name__}.{n}" for n, f in vars(owner).items() if not n.startswith("_") and inspect.isfunction(f))
    yield from (f"tf.{n}" for n in dir(tf) if getattr(getattr(tf, n), "__module__", "").startswith("taskfuse.schedule."))
    for module, names in (("schedulers", tf.schedulers.__all__), ("tiles", tf.tiles.__all__)):
        yield from (f"tf.{module}.{n}" for n in names if inspect.isfunction(getattr(getattr(tf, module), n)))
    layouts = vars(tf.layouts).items()
    yield from (f"tf.layouts.{n}" for n, f in layouts if not n.startswith("_") and inspect.isfunction(f) and f.__module__ == tf.layouts.__name__)
    yield from (f"tf.atoms.{n}" for n, a in vars(tf.atoms).items() if isinstance(a, Atom))
    yield from (f"tf.atoms.{n}" for n in ("find",))
    yield from (f"ParallelType.{p.name}" for p in tf.ParallelType)
    yield from (f"MemoryType.{m.name}" for m in tf.MemoryType)


def unlowered(*_: object) -> Outcome:
    """In the place of lowering: which calls are drawn does not depend on it."""
    return Outcome(None, None, None)


def drawn(case: Case) -> Iterator[str]:
    """What a case calls, in the same names."""
    source = case.program.source()
    yield from re.findall(r"\btf\.(?:\w+\.)?\w+", source)
    yield from (f"ParallelType.{n}" for n in re.findall(r"\bP\.(\w+)", source))
    yield from (f"MemoryType.{n}" for n in re.findall(r"\bM\.(\w+)", source))
    owners = {"fusion": "Fusion", "group": "Group", "t": "Task"}
    for receiver, name in re.findall(r"\b(\w+)(?:\([^()]*\))?\.(\w+)\(", source):
        owner = owners.get(receiver.rstrip("0123456789"), "TensorView")
        yield f"{owner if owner != 'Task' or hasattr(tf.Task, name) else 'TensorView'}.{name}"  # tables are called so, too
    yield from (f"AxisRef.{n}" for n in re.findall(r"\.axis\([^()]*\)\.(\w+)\(", source))


def test_every_scheduling_call_is_drawn_or_left_out_for_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = set(public())
    assert not [n for n in NOT_DRAWN if n not in wanted], "there is no such call"
    left = wanted - NOT_DRAWN.keys()
    assert len(left) > 50
    for mix in OPTIONS:
        left -= set(drawn(random_case_of(0, mix)))  # with what is called where lowering refuses a case
    for seed in range(1, STAGES):
        left -= set(drawn(random_case_of(seed, Mix.STAGED)))  # stages are for cases that lower
    monkeypatch.setattr("taskfuse.testing.case._lowered", unlowered)
    for mix, seeds in RARE.items():
        for seed in seeds:
            left -= set(drawn(seeded_case(seed, mix)))
    for seed, mix in product(range(1, EACH), OPTIONS):
        if left:
            left -= set(drawn(seeded_case(seed, mix)))
    some = ((mix, seed) for seed in range(EACH, SOME) for mix in (Mix.FORMS, Mix.PROBLEMS))
    rare = (*some, *((mix, seed) for seed in range(EACH, MOST) for mix in (Mix.AUTOMATIC, Mix.PRODUCTS, Mix.REWRITES)))  # which have most to choose from
    for mix, seed in rare:
        if not left:
            break
        left -= set(drawn(seeded_case(seed, mix)))
    assert not left, "no random case calls these: draw them in taskfuse/testing, or say in NOT_DRAWN why not"

"""torch's own op tests through the backend: every sample of every op of torch's database of ops, compiled, against eager.

    python benchmarks/torch_ops.py [--ops REGEX] [--samples 4] [--part 0/2] [--gradients] [--seconds 60] [--options JSON]

On the host, with the reference in place of kernels; with a GPU, ``--device cuda`` runs kernels. Prints one line per op that is wrong or fails, and totals:
*ours*: at least one fusion, and all results agree; *left*: agree, all left to torch; *wrong*; *failed*: an error of the backend.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import torch

if "expecttest" not in sys.modules:  # torch's tests want it for texts that the database of ops does not have
    stand_in = types.ModuleType("expecttest")
    stand_in.__dict__["TestCase"] = unittest.TestCase
    sys.modules["expecttest"] = stand_in

from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core

from taskfuse.torch.compilation import GraphReport, listeners
from taskfuse.torch.dynamo import backend

RANDOM = re.compile(r"rand|normal|dropout|bernoulli|multinomial|poisson|uniform|exponential|geometric|cauchy|empty|lowrank|rrelu")
"""Ops whose results are not the same twice."""

TIES = ("argsort", "kthvalue", "sort", "topk")
"""Ops that may number equal elements in any order, unless they are called with ``stable=True``."""

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)


def tensors(value: Any) -> Iterator[Any]:
    """The tensors of nested lists, tuples and dicts, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for v in cast("dict[Any, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value):
            yield from tensors(v)


def agree(got: Any, want: Any, exact: Any, strides: bool = True) -> bool:
    """Whether two results agree: equal, or within the tolerance of the dtype, or no farther than twice eager's from the result in float64.

    Gradients need not have eager's ``strides``: those of broadcasts have strides of 0 there.
    """
    mine, theirs = list(tensors(got)), list(tensors(want))
    if len(mine) != len(theirs):
        return False
    finer = list(tensors(exact)) if exact is not None else theirs
    for a, b, c in zip(mine, theirs, finer if len(finer) == len(theirs) else theirs, strict=True):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if strides and a.layout is torch.strided and a.numel() and a.stride() != b.stride() and a.is_contiguous() != b.is_contiguous():
            return False
        a, b = a.detach(), b.detach()
        if torch.equal(a, b):
            continue
        if not (a.is_floating_point() or a.is_complex()):
            return False
        try:
            torch.testing.assert_close(a, b, equal_nan=True)
        except AssertionError:
            wide = torch.complex128 if a.is_complex() else torch.float64
            d, e, f = a.to(wide), b.to(wide), c.detach().to(wide)
            keep = torch.isfinite(f) & torch.isfinite(e) & torch.isfinite(d)
            if (torch.isnan(d) != torch.isnan(e)).any() or (torch.isinf(d) & (d != e)).any() or not keep.any():
                return False
            mine_off, theirs_off = ((x - f)[keep].abs().pow(2).mean().sqrt() for x in (d, e))
            if not mine_off <= 2 * theirs_off + {torch.bfloat16: 1e-3, torch.float16: 1e-4}.get(a.dtype, 1e-6) * f[keep].abs().max().clamp(min=1):
                return False
    return True


def agree_but_for_ties(op: Any, sample: Any, got: Any, want: Any) -> bool:
    """Whether two results of an op of :data:`TIES` differ only in which of several equal elements its indices name, and none is named twice."""
    x, mine, theirs = sample.input, list(tensors(got)), list(tensors(want))
    if op.name not in TIES or sample.kwargs.get("stable") or not x.dim() or not agree(mine[:-1], theirs[:-1], None):
        return False
    takes_count = op.name in ("kthvalue", "topk")
    dim = sample.kwargs.get("dim", sample.args[takes_count] if len(sample.args) > takes_count else -1)
    a, b = mine[-1], theirs[-1]
    if a.dtype != b.dtype or a.shape != b.shape or ((a < 0) | (a >= x.shape[dim])).any():
        return False
    a, b = (t if t.dim() == x.dim() else t.unsqueeze(dim) for t in (a, b))
    return not (a.sort(dim).values.diff(dim=dim) == 0).any() and torch.equal(x.gather(dim, a), x.gather(dim, b))


def widened(value: Any) -> Any:
    """The same arguments in float64, with gradients where they have some."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(torch.float64).requires_grad_(value.requires_grad) if value.is_floating_point() else value
    if isinstance(value, list | tuple):
        return [widened(v) for v in cast("list[Any]", value)]
    return value


def trial(op: Any, dtype: Any, device: str, samples: int, gradients: bool, more: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What became of each sample: the outcome, and a note."""
    reports: list[GraphReport] = []
    listeners[:] = [reports.append]
    options = {"strict": True, "run": "kernels" if device == "cuda" else "reference", "least": 1, "cache": False, "products": True, **more}
    for k, sample in enumerate(op.sample_inputs(device, dtype, requires_grad=gradients)):
        if k >= samples:
            return
        torch._dynamo.reset()
        reports.clear()
        args, kwargs = (sample.input, *sample.args), sample.kwargs

        def call(*args: Any, **kwargs: Any) -> Any:
            return op.op(*args, **kwargs)

        try:
            want = call(*args, **kwargs)
            again = call(*args, **kwargs)
        except Exception:  # eager refuses the sample
            continue
        if not agree(again, want, None):
            continue
        finer: tuple[Any, dict[str, Any]] = ((), {})
        try:
            finer = widened(args), {k: widened(v) for k, v in kwargs.items()}
            exact = call(*finer[0], **finer[1])
        except Exception:
            exact = None
        try:
            got = torch.compile(call, backend=backend, options=options)(*args, **kwargs)
        except Exception as error:
            yield "failed", f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
            continue
        ours = any(r.fusions for r in reports)
        if not agree(got, want, exact) and not agree_but_for_ties(op, sample, got, want):
            text = "; ".join(str(line[1:3]) for r in reports for line in r.ops if line[2].startswith("fusion"))
            yield ("wrong" if ours else "differs"), f"sample {k}: {text[:300]}"
            continue
        if gradients:
            leaves = [t for t in tensors((args, kwargs)) if t.requires_grad]
            pairs = [(a, b) for a, b in zip(tensors(got), tensors(want), strict=True) if b.requires_grad]
            if leaves and pairs:
                try:
                    theirs = torch.autograd.grad([b.sum() for _, b in pairs], leaves, allow_unused=True)
                except Exception:
                    continue
                try:
                    mine = torch.autograd.grad([a.sum() for a, _ in pairs], leaves, allow_unused=True)
                except Exception as error:
                    yield "failed", f"backward: {type(error).__name__}: {' '.join(str(error).split())[:160]}"
                    continue
                try:
                    wide = [t for t in tensors(finer) if t.requires_grad]
                    best = torch.autograd.grad([t.sum() for t in tensors(exact) if t.requires_grad], wide, allow_unused=True)
                except Exception:
                    best = None
                known = None if best is None else [t for t in best if t is not None]
                if not agree([m for m in mine if m is not None], [t for t in theirs if t is not None], known, strides=False):
                    yield "wrong", f"gradient of sample {k}"
                    continue
        yield ("ours" if ours else "left"), ""


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", default="")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--seconds", type=float, default=1e9, help="no further op after so long")
    parser.add_argument("--options", default="{}")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    core.extract_test_fn = lambda: None  # it walks the stack for each sample, to name the test, of which there is none
    part, parts = map(int, given.part.split("/"))
    totals: Counter[str] = Counter()
    by_op: dict[str, set[str]] = {}
    start = time.perf_counter()
    for op in op_db[part::parts]:
        name = f"{op.name}{'.' + op.variant_test_name if op.variant_test_name else ''}"
        if (given.ops and not re.search(given.ops, name)) or RANDOM.search(op.name):
            continue
        if time.perf_counter() - start > given.seconds:
            print("no time:", name, flush=True)
            continue
        for dtype in (torch.float32,) if given.gradients else DTYPES:
            if dtype not in op.supported_dtypes(given.device) or (given.gradients and not op.supports_autograd):
                continue
            try:
                torch.manual_seed(0)
                for outcome, note in trial(op, dtype, given.device, given.samples, given.gradients, json.loads(given.options)):
                    totals[outcome] += 1
                    by_op.setdefault(name, set()).add(outcome)
                    if note:
                        print(f"{outcome}: {name} {dtype}: {note}", flush=True)
            except Exception as error:
                print(f"sampling: {name} {dtype}: {type(error).__name__}: {str(error)[:100]}", flush=True)
    print(dict(totals), f"{len(by_op)} ops,", {k: sum(k in v for v in by_op.values()) for k in totals}, f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    sys.exit(main())

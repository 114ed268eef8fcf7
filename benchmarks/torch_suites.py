"""Test files of torch through the backend: those of a checkout of torch that the reader has.

    python benchmarks/torch_suites.py PYTORCH/test/inductor/test_torchinductor.py [--tests REGEX] [--dynamic] [--seconds 60] [--part 0/2]
    python benchmarks/torch_suites.py PYTORCH/test/dynamo/test_repros.py

Every test of the file runs with taskfuse where it compiles: ``compile_fx``, ``torch.compile`` and ``torch._dynamo.optimize`` with the backends that compile.
On the host, with the reference in place of kernels. A class ``CommonTemplate`` becomes a test case for the host. A test that fails runs once more with
``aot_eager``, which compiles nothing: what fails there, too, tests Inductor's own code, or wants a device or package that is not there.

*ours*: passed, with at least one fusion; *left*: passed, without; *wrong*: an assertion of the test fails that holds with ``aot_eager``; *failed*: an error of
the backend; *others*: fails with ``aot_eager``; *internal*: not run, as its source reads what only Inductor makes; *skipped*: by the test itself;
*slow*: took more than ``--seconds`` of the processor.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import re
import signal
import sys
import time
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, cast
from unittest import mock

import torch
import torch._dynamo

if "expecttest" not in sys.modules:  # torch's tests want it for texts, which do not depend on the backend
    stand_in = types.ModuleType("expecttest")
    stand_in.__dict__["TestCase"] = type("TestCase", (unittest.TestCase,), {"assertExpectedInline": mock.Mock(), "assertExpected": mock.Mock()})
    sys.modules["expecttest"] = stand_in

from taskfuse.torch.compilation import GraphReport, listeners
from taskfuse.torch.dynamo import backend

OPTIONS = {"strict": True, "run": "reference", "least": 1, "cache": False}

REPLACED = ("inductor", "aot_eager", "aot_eager_decomp_partition")
"""Backends in whose place taskfuse comes."""

INTERNAL = re.compile(r"run_and_get|FileCheck|assertGeneratedKernel|aoti_|AOTI|ir_nodes_pre_fusion|metrics\.|codecache|counters\[")
"""What a test reads that only Inductor has."""


class Slow(Exception):
    """A test took too long."""


def ours(gm: Any, example_inputs: Any, **_: Any) -> Any:
    """The backend as the tests run it."""
    return backend(gm, example_inputs, options=OPTIONS)


def control(gm: Any, example_inputs: Any, **_: Any) -> Any:
    """``aot_eager``."""
    return torch._dynamo.lookup_backend("aot_eager")(gm, example_inputs)


def replaced(stack: ExitStack, module: Any, chosen: Callable[..., Any]) -> None:
    """Let what the tests compile with be ``chosen``."""

    def patched(function: Callable[..., Any], default: str, place: int) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            given = list(args)
            wanted = given[place] if len(given) > place else kwargs.get("backend", default)
            if wanted in REPLACED:
                kwargs.pop("mode", None)
                kwargs.pop("options", None)
                if len(given) > place:
                    given[place] = chosen
                else:
                    kwargs["backend"] = chosen
            return function(*given, **kwargs)

        return call

    stack.enter_context(mock.patch.object(torch, "compile", patched(torch.compile, "inductor", 1)))
    stack.enter_context(mock.patch.object(torch._dynamo, "optimize", patched(torch._dynamo.optimize, "inductor", 0)))
    if hasattr(module, "compile_fx"):
        stack.enter_context(mock.patch.object(module, "compile_fx", chosen))


def loaded(path: str) -> Any:
    """The module of a file."""
    name = path.rsplit("/", 1)[-1].removesuffix(".py")
    sys.path.insert(0, path.rsplit("/", 1)[0])
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def tests_of(module: Any) -> Iterator[unittest.TestCase]:
    """The tests of a module, those of a ``CommonTemplate`` on the host first."""
    template = getattr(module, "CommonTemplate", None)
    if template is not None:
        case: Any = type("HostTests", (module.TestCase,), {"common": module.check_model, "device": "cpu"})
        module.copy_tests(template, case, "cpu")
        sweep: Any = type("SweepTests", (module.SweepInputs2, module.TestCase), {"gen": module.InputGen(10, "cpu")})
        sweep.populate()
        classes: list[Any] = [case, sweep]
    else:
        values = list(cast("dict[str, Any]", vars(module)).values())
        classes = [c for c in values if isinstance(c, type) and issubclass(c, unittest.TestCase) and c.__module__ == module.__name__]
    for own in classes:
        own.__module__ = module.__name__
        for name in unittest.TestLoader().getTestCaseNames(own):
            yield own(name)


def source(test: unittest.TestCase) -> str:
    """The source of a test, without what wraps it."""
    function = getattr(type(test), test._testMethodName)
    while True:
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""


def outcome(test: unittest.TestCase, module: Any, chosen: Callable[..., Any], seconds: float) -> tuple[str, str]:
    """How a test ends: ``"passed"``, ``"skipped"``, ``"slow"``, ``"asserts"`` or ``"raises"``; and a note."""
    errors: list[BaseException] = []

    class Result(unittest.TestResult):
        def addError(self, test: Any, err: Any) -> None:
            errors.append(err[1])
            super().addError(test, err)

        def addFailure(self, test: Any, err: Any) -> None:
            errors.append(err[1])
            super().addFailure(test, err)

    def late(*_: Any) -> None:
        raise Slow

    result = Result()
    torch._dynamo.reset()
    torch.manual_seed(0)
    signal.signal(signal.SIGPROF, late)
    with ExitStack() as stack:
        replaced(stack, module, chosen)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            unittest.TestSuite([test]).run(result)
        except Slow as error:
            errors.append(error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    if any(_caused(e, Slow) for e in errors):
        return "slow", ""
    if errors:
        text = " ".join(f"{type(errors[0]).__name__}: {errors[0]}".split())
        own = isinstance(errors[0], AssertionError) and not _caused(errors[0], torch._dynamo.exc.BackendCompilerFailed)
        return ("asserts" if own else "raises"), text
    return ("skipped" if result.skipped else "passed"), ""


def _caused(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--tests", default="")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--dynamic", action="store_true", help="with symbolic extents from the first call on")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    part, parts = map(int, given.part.split("/"))
    module = loaded(given.file)
    if given.dynamic:
        torch._dynamo.config.assume_static_by_default = False
    totals: Counter[str] = Counter()
    start = time.perf_counter()
    for k, test in enumerate(tests_of(module)):
        name = str(test.id()).split(".", 1)[-1]
        if k % parts != part or (given.tests and not re.search(given.tests, name)):
            continue
        if INTERNAL.search(source(test)):
            totals["internal"] += 1
            continue
        reports: list[GraphReport] = []
        listeners[:] = [reports.append]
        how, note = outcome(test, module, ours, given.seconds)
        fusions = sum(len(r.fusions) for r in reports)
        if how == "passed":
            how = "ours" if fusions else "left"
        elif how in ("asserts", "raises"):
            other, _ = outcome(type(test)(test._testMethodName), module, control, given.seconds)
            how = "others" if other != "passed" else "wrong" if how == "asserts" else "failed"
        totals[how] += 1
        print(f"{how}: {name}{': ' + note[:400] if how in ('wrong', 'failed', 'others') else ''}", flush=True)
    print(dict(totals), f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    sys.exit(main())

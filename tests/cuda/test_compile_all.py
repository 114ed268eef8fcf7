"""Every kernel that there is becomes CUDA C++ that NVRTC compiles, with no GPU: examples, hand-written kernels, random kernels.

Kernels are compiled several at a time, each in a namespace of its own: most of the time of a small compilation is NVRTC's start.
"""

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import count, islice
from pathlib import Path

import pytest

import taskfuse as tf
from taskfuse.cuda.nvrtc import CompileOptions, known_archs
from taskfuse.cuda.signature import Source
from taskfuse.cuda.source import emit
from tests.cuda.compiled import FORMS, Unoptimized, compiles, texts
from tests.examples.cases import CASES, lowered
from tests.golden import Golden
from tests.random_cases import random_case_of

ROOT = Path(__file__).parents[2]
RANDOM = 18  # `make compiles` looks at as many as wanted
NEWER = next(arch for arch in ("sm_120", "sm_100a") if arch in known_archs())


@cache
def examples() -> Mapping[str, tf.Kernel]:
    """Kernels of the examples and of tests/kernels, by name."""
    written = {path.name: tf.parse_kernel(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "tests" / "kernels").glob("*.kir"))}
    return {case.name: lowered(case) for case in CASES} | written


@cache
def texts_of_examples(how: str) -> Mapping[str, Source]:
    """The texts of the same, made once."""
    return texts(examples(), how)


@cache
def random_kernels() -> Mapping[str, tf.Kernel]:
    """Kernels of the first seeds that lower, by name."""
    found = ((f"seed {seed}", random_case_of(seed).kernel) for seed in count())
    return dict(islice(((name, kernel) for name, kernel in found if kernel is not None), RANDOM))


def allowed(sources: Mapping[str, Source], arch: int) -> dict[str, Source]:
    """Those that an architecture other than 9.0 can run."""
    return {name: source for name, source in sources.items() if source.arch <= arch and not source.feature_arch}


@pytest.mark.parametrize("how", FORMS)
def test_examples_and_written_kernels(how: str) -> None:
    """Every third of them is optimized. In the other forms every third of them; each form begins with another one."""
    if how == "dense":
        sources = texts_of_examples(how)
        optimized = dict(islice(sources.items(), 0, None, 3))
        compiles(optimized, CompileOptions())
        compiles({name: source for name, source in sources.items() if name not in optimized})
        return
    some = islice(texts_of_examples(how).items(), list(FORMS).index(how) % 3, None, 3)
    compiles(dict(some), Unoptimized(fast_math=FORMS[how][3]))


def test_random_kernels() -> None:
    compiles(texts(random_kernels(), "dense"))


@pytest.mark.parametrize(("how", "first"), [("rows", 0), ("strided, wide", 6), ("debug, fast math", 12)])
def test_random_kernels_in_other_forms(how: str, first: int) -> None:
    compiles(texts(dict(islice(random_kernels().items(), first, first + 6)), how), Unoptimized(fast_math=FORMS[how][3]))


@pytest.mark.parametrize(("arch", "number"), [("sm_80", 80), (NEWER, int(NEWER.strip("sm_a")))])
def test_other_architectures(arch: str, number: int) -> None:
    sources = allowed(texts_of_examples("dense"), number)
    assert sources.keys() >= {"founding", "matmul", "rotate.kir"}
    assert "gemm.kir" not in sources  # wgmma is of sm_90a alone
    compiles(dict(islice(sources.items(), number == 80, None, 2)), Unoptimized(arch))  # each architecture the half that the other does not
    compiles(allowed(texts(dict(islice(random_kernels().items(), 6, 15)), "dense"), number), Unoptimized(arch))


def everything() -> Iterator[tuple[str, Source]]:
    for how in FORMS:
        yield from texts_of_examples(how).items()
    yield from texts(random_kernels(), "dense").items()


def test_texts_include_nothing_and_define_what_they_use() -> None:
    for name, source in everything():
        assert "#include" not in source.text, name
        *helpers, _ = source.text.partition("// grid ")[0].split("\n\n")
        for helper in helpers:
            heads = re.findall(r"__device__.*?(\w+)\(|^(?:struct|union)(?: \S*\([^)]*\))? (\w+)", helper, re.MULTILINE)
            defined = [word for head in heads for word in head if word]
            assert defined, helper
            elsewhere = source.text.replace(helper, "")
            assert any(re.search(rf"\b{word}\b", elsewhere) for word in defined), f"{name} does not use {defined}"


def test_golden_kernels_give_the_texts_of_the_examples() -> None:
    for case in CASES:
        text = (ROOT / "tests" / "goldens" / "examples" / f"{case.name}.kir").read_text(encoding="utf-8")
        assert code(emit(tf.parse_kernel(text))) == code(texts_of_examples("dense")[case.name])


def code(source: Source) -> list[str]:
    """The lines of a text without comments; notes are not part of a kernel that is read from text."""
    return [line for line in source.text.splitlines() if not line.lstrip().startswith("//")]


def digest() -> str:
    """A hash of the texts of every fifth example."""
    some = {case.name: lowered(case) for case in islice(CASES, 0, None, 5)}
    return hashlib.sha256("".join(source.text for source in texts(some, "dense").values()).encode()).hexdigest()


def test_texts_are_the_same_in_every_process() -> None:
    program = "from tests.cuda.test_compile_all import digest; print(digest())"
    command = ["env", "PYTHONHASHSEED=1", f"PYTHONPATH={ROOT}", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == digest()


@pytest.mark.parametrize("name", ["founding", "gemm.kir"])
def test_text(name: str, golden: Golden) -> None:
    golden.check(f"cuda/{name.removesuffix('.kir')}.cu", emit(examples()[name]).text)

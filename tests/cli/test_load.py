"""From a name on a command line to fusions and kernels."""

import io
import sys
from pathlib import Path

import pytest

import taskfuse as tf
from examples import founding
from taskfuse.cli.load import EXAMPLES, Loaded, load, parse
from taskfuse.errors import TaskfuseError, TaskfuseWarning
from tests.errors import text_of

PROGRAM = """
import beside
import taskfuse as tf

def build():
    with tf.Fusion("sums") as fusion:
        fusion.add_output(tf.sum(tf.define_tensor(["M", "N"], name="x"), axis=1))
    fusion.inline_most()
    return fusion

def pair():
    return [build(), tf.lower(build())]

def broken():
    raise KeyError("mine")

made = build()
number = 3

if __name__ == "__main__":
    raise SystemExit("this is for main programs")
"""
KERNEL = "KERNEL k(x: float32[4]) -> (y: float32[4])\n  GRID (1, 1, 1)  BLOCK (4, 1, 1)\n\n{}[threadIdx.x] = copy(1.0)\n"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("")
    path = tmp_path / "sums.py"
    path.write_text(PROGRAM)
    return path


def test_a_program_builds_a_fusion(program: Path) -> None:
    (loaded,) = load(str(program))
    assert loaded.name == "sums"
    assert loaded.given is None
    assert load(f"{program}:made")[0].name == "sums"
    assert str(program.parent) not in sys.path


def test_several_are_each_loaded(program: Path) -> None:
    first, second = load(f"{program}:pair")
    assert first.fusion is not None
    assert second.fusion is None
    assert second.kernel() is second.given


def test_what_a_program_raises_is_its_own(program: Path) -> None:
    with pytest.raises(KeyError, match="mine"):
        load(f"{program}:broken")
    assert str(program.parent) not in sys.path


def test_programs_at_fault(program: Path) -> None:
    assert text_of(lambda: load(f"{program}:missing")) == (
        f"{program} has no function 'missing'\nhelp: name the one that returns the fusion: {program}:function"
    )
    assert text_of(lambda: load(f"{program}:number")) == (
        f"{program}:number gives int, not a fusion\nhelp: let it return a tf.Fusion, a kernel, or a tuple of these"
    )


def test_an_example_by_its_name() -> None:
    (loaded,) = load("founding")
    assert loaded.fusion is not None
    assert str(loaded.fusion) == str(founding.build())
    text = text_of(lambda: load("found"))
    assert text.startswith("there is no file or example 'found'\nhelp: give a Python program, a text of a fusion or kernel, an example (")
    assert all(path.stem in text for path in EXAMPLES.glob("*.py"))


def test_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fusion = founding.build()
    path = tmp_path / "text"
    path.write_text(f"# a comment\n\n{fusion}")
    (loaded,) = load(str(path))
    assert str(loaded.fusion) == str(fusion)
    path.write_text(f"\n# a comment\n{KERNEL.format('y')}")
    (loaded,) = load(str(path))
    assert loaded.fusion is None
    assert loaded.name == "k"
    assert next(s.location.file for s in loaded.kernel().body if s.location is not None) == str(path)
    monkeypatch.setattr("sys.stdin", io.StringIO(KERNEL.format("y")))
    assert load("-")[0].kernel() == loaded.kernel()


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "line 1, column 1: "), (b"\xff\xfe", "is not text"), (b"KERNEL k(", "line 1, column "), (KERNEL.format("x").encode(), "input 'x' is written")],
)
def test_texts_at_fault(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "text"
    path.write_bytes(content)
    with pytest.raises(TaskfuseError, match=message):
        load(str(path))


def test_files_at_fault(tmp_path: Path) -> None:
    assert text_of(lambda: load(str(tmp_path / "no.py"))) == f"cannot read {tmp_path}/no.py: No such file or directory"
    assert text_of(lambda: load(str(tmp_path))) == f"cannot read {tmp_path}: Is a directory"
    path = tmp_path / "k.kir"
    path.write_text(KERNEL.format("y"))
    assert text_of(lambda: load(f"{path}:f")) == f"{path} is not a Python program, so it has no function 'f'\nhelp: leave out :f"


def test_a_kernel_comes_without_a_fusion() -> None:
    loaded = parse(KERNEL.format("y"))
    assert text_of(loaded.required_fusion) == "kernel 'k' comes without a fusion\nhelp: give the fusion's text, or the program that builds it"


def test_a_fusion_without_a_schedule_is_lowered_with_a_warning() -> None:
    with tf.Fusion("plain") as fusion:
        fusion.add_output(tf.neg(tf.define_tensor([4], name="x")))
    with pytest.warns(TaskfuseWarning, match="fusion 'plain' has no schedule: one thread computes it all"):
        assert Loaded(fusion, None).kernel().name == "plain"

"""`python -m taskfuse`: its commands on examples, texts and programs; its errors."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

import taskfuse as tf
from examples import founding
from taskfuse.cli.main import ShownStage, main
from tests.lines import line_of

ROOT = Path(__file__).parents[2]
GEMM = str(ROOT / "tests" / "kernels" / "gemm.kir")

PROGRAM = """
import beside
import taskfuse as tf

def build():
    with tf.Fusion("sums") as fusion:
        x = tf.define_tensor(["M", "N"], dtype=tf.int32, name="x")
        fusion.add_output(tf.sum(x, axis=1) + tf.define_scalar(tf.int32, name="c"))
    fusion.inline_most()
    return fusion

def pair():
    return [build(), tf.lower(build())]

made = build()
number = 3

if __name__ == "__main__":
    raise SystemExit("this is for main programs")
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TASKFUSE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("")
    path = tmp_path / "sums.py"
    path.write_text(PROGRAM)
    return path


class Run:
    """The command line in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: object) -> str:
        """What a command prints that succeeds."""
        assert main([str(a) for a in arguments]) == 0
        out, err = self.capsys.readouterr()
        assert err == ""
        return out

    def fails(self, *arguments: object) -> str:
        """What it says on stderr if it fails."""
        assert main([str(a) for a in arguments]) == 1
        out, err = self.capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ")
        return err.removeprefix("error: ")

    def refused(self, *arguments: object) -> str:
        """What it says where the usage is wrong."""
        with pytest.raises(SystemExit) as caught:
            main([str(a) for a in arguments])
        assert caught.value.code == 2
        return self.capsys.readouterr().err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


# -- show ---------------------------------------------------------------------------------------------------------------------------


def test_stages_of_an_example(run: Run) -> None:
    fusion = founding.build()
    kernel = tf.lower(fusion)
    assert run("show", "fusion", "founding").strip() == str(fusion).strip()
    assert run("show", "kernel", "founding").strip() == str(kernel).strip()
    assert run("show", "kernel", "founding", "--witness").strip() == kernel.text(witness=True).strip() != str(kernel).strip()
    assert run("show", "kernel", "founding", "--locations").strip() == kernel.text(locations=True).strip() != str(kernel).strip()
    assert run("show", "cuda", "founding").strip() == kernel.cuda_source().strip()
    assert run("show", "cuda", "founding", "--locations").strip() == kernel.cuda_source(locations=True).strip() != kernel.cuda_source().strip()
    assert run("show", "cuda", "founding", "--debug", "--fast-math").strip() == kernel.cuda_source(debug=True, fast_math=True).strip()
    assert run("show", "channels", "founding").strip() == str(kernel.channels())
    assert ".target sm_80" in run("show", "ptx", "founding", "--arch", "sm_80")
    assert "EXIT" in run("show", "sass", "founding", "--arch", "sm_80")
    assert run("show", "launch", "founding", "--set", "B=2", "S=3", "--set", "T=4") == "cat: grid (2, 1, 1)  block (4, 12, 2)  shared 208 bytes\n"
    assert "\n  threads    96 per block\n" in run("show", "resources", "founding", "--set", "S=3", "T=4")


def test_every_stage_of_a_kernel_text(run: Run) -> None:
    for stage in ShownStage:
        if stage in (ShownStage.FUSION, ShownStage.PLAN):
            assert "kernel 'gemm' comes without a fusion" in run.fails("show", stage.value, GEMM)
        else:
            assert run("show", stage.value, GEMM, "--set", "M=128", "N=128", "K=64").strip()


def test_a_file_with_several_fusions(run: Run) -> None:
    everything = run("show", "kernel", ROOT / "examples" / "cat.py")
    assert everything.count("KERNEL ") == 3
    assert run("show", "kernel", f"{ROOT}/examples/cat.py:gather") == everything[: everything.index("\n\nKERNEL") + 1]


def test_texts(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "text"
    text = run("show", "fusion", "founding")
    path.write_text(text)
    assert run("show", "fusion", path) == text
    kernel = run("show", "kernel", path)
    assert kernel == run("show", "kernel", "founding")
    monkeypatch.setattr("sys.stdin", io.StringIO(kernel))
    assert tf.parse_kernel(run("show", "kernel", "-")) == tf.parse_kernel(kernel)


def test_errors_of_the_stage(run: Run) -> None:
    assert run.fails("show", "launch", "founding").endswith("help: give the extents B=..., S=..., T=...\n")
    assert "instructions of sm_90a only" in run.fails("show", "ptx", GEMM, "--arch", "sm_80")


# -- simulate -----------------------------------------------------------------------------------------------------------------------


def test_simulate(run: Run, program: Path) -> None:
    found = run("simulate", "founding", "--set", "S=3", "--seed", "4", "--interleaving", "pct")
    assert found.splitlines()[0] == "cat: B=7, S=3, T=7, seed 4"
    assert found.splitlines()[1].startswith("  tv10: float32[7, 12, 7]  largest difference from NumPy ")
    assert run("simulate", program) == "sums: M=7, N=7, seed 0\n  tv2: int64[7]  largest difference from NumPy 0 (relative 0)\n"
    assert run("simulate", GEMM, "--set", "M=64").endswith("  D: bfloat16[64, 8]  no fusion to compare with\n")


def test_explore(run: Run, tmp_path: Path) -> None:
    assert run("simulate", "pipeline", "--set", "M=1", "N=70", "--explore").startswith("pipeline: all interleavings end with the same outputs (")
    broken = tmp_path / "broken.kir"
    broken.write_text(
        (ROOT / "tests" / "kernels" / "ring.kir").read_text(encoding="utf-8").replace("    WAIT full[c.slot] parity c.parity\n", ""), encoding="utf-8"
    )
    found = run.fails("simulate", broken, "--explore", "--set", "N=2")
    assert found.startswith("ring: an interleaving fails (")
    assert "replay: kernel.simulate(..., choices=[" in found


def test_timeline(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    found = run("simulate", "stream", "--timeline", path, "--interleaving", "low-first", "--set", "M=20")
    assert found.startswith("stream: ")
    assert "\nTMA load" in found
    assert len(json.loads(path.read_text(encoding="utf-8"))["traceEvents"]) > 100
    assert "a timeline shows one" in run.fails("simulate", "cat", "--timeline", path)
    assert "cannot write" in run.fails("simulate", "stream", "--timeline", tmp_path)
    broken = tmp_path / "broken.kir"
    broken.write_text((ROOT / "tests" / "kernels" / "ring.kir").read_text(encoding="utf-8").replace("parity 1", "parity 0"), encoding="utf-8")
    assert "deadlock: no thread can continue" in run.fails("simulate", broken, "--timeline", path)


def test_simulate_at_fault(run: Run) -> None:
    assert "B is 0; it must be at least 1" in run.fails("simulate", "founding", "--set", "B=0")
    assert "it has no extent Q" in run.fails("simulate", "founding", "--set", "Q=0")
    assert "threads per block" in run.fails("simulate", "founding", "--set", "T=1000")


# -- verify -------------------------------------------------------------------------------------------------------------------------


def test_verify(run: Run, tmp_path: Path) -> None:
    assert run("verify", "founding").startswith("cat: proved\nstructure: 1 of 1 obligations\n")
    said = run("verify", "cat")
    assert sum(said.count(f": proved\n{layer}") for layer in ("rewritings", "structure", "order")) == 3
    broken = tmp_path / "broken.kir"
    broken.write_text((ROOT / "tests" / "kernels" / "ring.kir").read_text(encoding="utf-8").replace("parity 1", "parity 0"), encoding="utf-8")
    found = run.fails("verify", broken)
    assert found.startswith("ring: refuted\n")
    assert "refuted: deadlock: no thread can continue" in found
    waits = [number for number, line in enumerate(broken.read_text(encoding="utf-8").split("\n"), 1) if line.lstrip().startswith("WAIT")]
    assert any(f"--> broken.kir:{number}\n" in found for number in waits)


# -- compile, cache, versions -------------------------------------------------------------------------------------------------------


def test_compile(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("compile", "founding", "--arch", "sm_80").startswith("cat.sm_80.cubin: ")
    assert (tmp_path / "cat.sm_80.cubin").read_bytes() == tf.lower(founding.build()).cubin("sm_80")
    assert "registers" in run("compile", "founding", "--arch", "sm_80", "--out", tmp_path / "k")
    assert (tmp_path / "k").read_bytes() == (tmp_path / "cat.sm_80.cubin").read_bytes()
    assert "has 3 fusions, but k is not a folder" in run.fails("compile", "cat", "--out", "k")
    assert run.fails("compile", "founding", "--out", "no/k") == "cannot write no/k: No such file or directory\n"
    (tmp_path / "folder").mkdir()
    run("compile", "cat", "--arch", "sm_80", "--out", "folder")
    assert len(list((tmp_path / "folder").glob("cat_*.sm_80.cubin"))) == 3


def test_cache(run: Run, cache: Path) -> None:
    assert run("cache", "info") == f"{cache}: 0 entries, 0 of {1 << 30} bytes\n"
    run("show", "resources", "transpose", "--arch", "sm_89")
    assert run("cache", "info").startswith(f"{cache}: 1 entries, ")
    assert run("cache", "clear") == f"{cache}: 1 entries removed\n"
    assert run("cache", "info").startswith(f"{cache}: 0 entries, ")


def test_a_setting_at_fault(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKFUSE_CACHE_BYTE", "1")
    assert "environment variable TASKFUSE_CACHE_BYTE: there is no such variable" in run.fails("cache", "info")


def test_versions(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert list(rows) == ["taskfuse", "Python", "NumPy", "cuda-bindings", "NVRTC", "driver", "nvdisasm"]
    assert rows["taskfuse"] == tf.__version__
    assert rows["NVRTC"].startswith("13.")


# -- usage --------------------------------------------------------------------------------------------------------------------------


def test_usage(run: Run) -> None:
    assert "the following arguments are required: command" in run.refused()
    assert "invalid choice: 'kernl'" in run.refused("show", "kernl", "founding")
    assert "'4' is not NAME=VALUE with a number" in run.refused("show", "launch", "founding", "--set", "4")
    assert "invalid choice: 'slow'" in run.refused("simulate", "founding", "--interleaving", "slow")


def test_a_warning_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import warnings

    def warn(name: str) -> None:
        warnings.simplefilter("always")
        warnings.warn("registers spill", tf.errors.TaskfuseWarning, stacklevel=2)
        raise tf.errors.TaskfuseError(message="the end")

    monkeypatch.setattr("taskfuse.cli.main.load", warn)
    assert main(["show", "kernel", "x"]) == 1
    assert capsys.readouterr().err == "warning: registers spill\nerror: the end\n"


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m taskfuse show kernel {ROOT}/examples/cat.py | head -n 1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.stderr == ""
    assert result.stdout.startswith("KERNEL cat_gather(")


def test_a_pipe_that_nobody_reads() -> None:
    command = [
        sys.executable,
        "-c",
        "import time, os; time.sleep(0.1); from taskfuse.cli.main import main; raise SystemExit(main(['show', 'cuda', 'founding']))",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_show_a_step_of_lowering(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "founding", "--step", "channels"]) == 0
    text = capsys.readouterr().out
    assert "CHANNEL ch0: tv5, tv6, tv7, tv8 from group1 to t5, 1 slots" in text
    assert main(["show", "plan", "founding", "--step", "channels", "--diff"]) == 0
    added = [line for line in capsys.readouterr().out.splitlines() if line.startswith("+")]
    assert added == ["+++ after", next("+" + line for line in text.splitlines() if line.startswith("CHANNEL"))]
    assert main(["show", "founding", "--step", "barriers", "--locations"]) == 0
    located = capsys.readouterr().out
    assert "          tv1 = sin(tv0[at.BIDx.t1, at.TIDy.t1, at.TIDx.t1])  @ " in located
    assert f"examples/founding.py:{line_of('tv1, tv2, tv3, tv4 = ', founding.build)}:" in located
    assert main(["show", "founding", "--step", "barriers"]) == 0
    assert "@ " not in capsys.readouterr().out.partition("DISPATCH")[2]
    assert main(["show", "kernel", "founding", "--step", "channels"]) == 1
    assert "--step and --diff show the plan" in capsys.readouterr().err
    assert main(["show", GEMM, "--step", "channels"]) == 1
    assert "comes without a fusion" in capsys.readouterr().err

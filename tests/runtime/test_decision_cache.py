"""Decisions on disk: the next process makes the same executable without lowering, searching or proving; and what is not an entry is made anew."""

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from examples import founding
from taskfuse.cuda import cache as compiled
from taskfuse.cuda.sources import Sources
from taskfuse.runtime import automatic, decision_cache, kernel, proof, specialization
from taskfuse.runtime.chain import Chain
from taskfuse.runtime.executable import Executable
from taskfuse.target import H100, H200
from tests.calls import always


def one(scale: float = 2.0) -> tf.Fusion:
    with tf.Fusion("one") as fusion:
        x = tf.define_tensor([4, 64], name="x")
        fusion.add_output(tf.exp(x) * scale)
    return fusion


def chain(scale: float = 2.0) -> tf.Fusion:
    """Two kernels: a normalization of rows, then one of columns."""
    with tf.Fusion("chain") as fusion:
        x = tf.define_tensor([64, 64], name="x")
        y = tf.softmax(x * scale, axis=1)
        fusion.add_output(tf.softmax(y, axis=0), y)
    return fusion


def symbolic() -> tf.Fusion:
    with tf.Fusion("rows") as fusion:
        x = tf.define_tensor(["M", "N"], name="x")
        fusion.add_output(tf.sum(x, axis=1))
    return fusion


FUSIONS: dict[str, Callable[[], tf.Fusion]] = {"one": one, "chain": chain, "symbolic": symbolic, "scheduled": founding.build}


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What is lowered, searched and proved, with a folder of its own."""
    found: list[str] = []

    def noted(module: object, name: str) -> None:
        real = getattr(module, name)

        def call(*args: Any, **options: Any) -> Any:
            found.append(name)
            return real(*args, **options)

        monkeypatch.setattr(module, name, call)

    noted(kernel, "lower")
    noted(automatic, "choose_segments")
    noted(specialization, "choose_segments")
    noted(proof, "verify")
    monkeypatch.setenv("TASKFUSE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TASKFUSE_CACHE_PLANS")
    another_process(monkeypatch)
    return found


def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what this process has in memory."""
    monkeypatch.setattr(proof, "_known", {})
    monkeypatch.setattr(compiled, "process_cache", compiled.ProcessCache())


def arguments(fusion: tf.Fusion) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.uniform(0.1, 1.0, [int(e) if e.free == frozenset() else 8 for e in tv.shape]).astype(np.float32) for tv in fusion.inputs]


def said(run: Executable) -> tuple[object, ...]:
    schedule = run.schedule
    told = () if schedule is None else (schedule.scheduler, schedule.us, schedule.code, schedule.explain())
    return tuple(k.text(witness=True) for k in run.kernels), told, run.arguments, run.name, [str(c) for c in run.certificates]


@pytest.mark.parametrize("name", FUSIONS)
def test_the_next_process_does_no_work_and_has_the_same_kernels(work: list[str], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    fusion = FUSIONS[name]()
    first = tf.compile(fusion, backend="sim", specialize=False)
    assert set(work) == {"lower", "verify"} | ({"choose_segments"} if name != "scheduled" else set())
    work.clear()
    another_process(monkeypatch)
    again = FUSIONS[name]()
    second = tf.compile(again, backend="sim", specialize=False)
    found = second(*arguments(fusion))
    assert work == []
    for a, b in zip(found, first(*arguments(fusion)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert said(second) == said(first)
    assert isinstance(second, Chain) == isinstance(first, Chain) == (name == "chain")
    if isinstance(second, Chain):
        again.add_output(tf.exp(again.outputs[0]))  # what happens to the fusion later is not in the executable
        assert str(second.fusion) == str(fusion)
        assert len(second(*arguments(fusion))) == 2


@pytest.mark.parametrize("name", ["one", "chain"])
def test_the_next_process_has_the_machine_code(work: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Neither a text is printed nor a compiler called, in :func:`taskfuse.compile` and for the first launch; the entry of the decision has all of it."""
    tf.compile(FUSIONS[name](), backend="cuda", target="H200")
    work.clear()
    another_process(monkeypatch)
    (decision,) = entries(tmp_path)
    for path in decision.parent.glob("*.kernel"):
        if path != decision:
            path.unlink()

    def never(*_: object) -> None:
        raise AssertionError("it is there")

    monkeypatch.setattr("taskfuse.cuda.source.emit", never)
    monkeypatch.setattr(compiled, "compile_cubin", never)
    run = tf.compile(FUSIONS[name](), backend="cuda", target="H200")
    runs = [link.run for link in run.links] if isinstance(run, Chain) else [run]
    assert len(runs) == (2 if name == "chain" else 1)
    for one_run in runs:
        assert isinstance(one_run, kernel.CompiledKernel)
        one_run.check_code(H200)  # takes what a launch takes
    assert work == []


def test_fresh_and_remembered_kernels_are_equal(work: list[str]) -> None:
    fresh, kept = (tf.compile(founding.build(), backend="sim").kernel for _ in range(2))
    assert kept is not fresh
    assert kept == fresh
    assert str(kept) == str(fresh)
    assert kept.cuda_source() == fresh.cuda_source()
    kept.check_ir()


def test_specializations_are_remembered(work: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"M": 4096, "N": 8192}
    first = tf.compile(symbolic(), backend="sim").at(sizes)
    assert "verify" in work
    work.clear()
    another_process(monkeypatch)
    second = tf.compile(symbolic(), backend="sim").at(sizes)
    assert work == []
    assert said(second) == said(first)


@pytest.mark.parametrize(
    "other",
    [
        lambda: tf.compile(one(3.0), backend="sim"),
        lambda: tf.compile(one(), backend="sim", target=H100),
        lambda: tf.compile(one(), backend="sim", fast_math=True),
        lambda: tf.compile(one(), backend="sim", arch="sm_90a"),
        lambda: tf.compile(one(), backend="sim", budget=3.0),
        lambda: tf.compile(one(), backend="sim", options=tf.LoweringOptions(order_seed=1)),
        lambda: tf.compile(one(), backend="sim", debug=True),
        lambda: tf.compile(one(), backend="sim", unsafe=True),
        lambda: tf.compile(one(), backend="sim", cache=False),
    ],
    ids=["text", "target", "fast_math", "arch", "budget", "options", "debug", "unsafe", "cache=False"],
)
def test_what_the_decision_depends_on(work: list[str], other: Callable[[], Executable]) -> None:
    tf.compile(one(), backend="sim", target="H200")
    work.clear()
    tf.compile(one(), backend="sim", target="H200")
    assert work == []
    other()
    assert "lower" in work


@pytest.mark.parametrize("setting", ["TASKFUSE_CACHE_PLANS=0", "TASKFUSE_CACHE_BYTES=0", "TASKFUSE_ALWAYS_COMPILE=1", "TASKFUSE_VERIFY=0"])
def test_settings_that_turn_it_off(work: list[str], monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    tf.compile(one(), backend="sim")
    work.clear()
    monkeypatch.setenv(*setting.split("="))
    tf.compile(one(), backend="sim")
    assert "lower" in work


def test_another_state_of_the_package_remembers_nothing(work: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tf.compile(one(), backend="sim")
    work.clear()
    monkeypatch.setattr(decision_cache, "sources", always(Sources("another", "another")))
    tf.compile(one(), backend="sim")
    assert {"lower", "choose_segments"} <= set(work)


def test_a_verdict_counts_for_its_text_and_checker_alone(work: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tf.compile(one(), backend="sim")
    another_process(monkeypatch)
    work.clear()
    monkeypatch.setattr(proof, "sources", always(Sources("any", "another")))
    tf.compile(one(), backend="sim")
    assert "verify" in work


def entries(folder: Path) -> list[Path]:
    """The decisions in the folder: entries whose content is a JSON object with kernels."""
    found = list[Path]()
    for path in sorted((folder / "cache").glob("*.kernel")):
        try:
            content = json.loads(path.read_bytes()[len(b"taskfuse kernel 1\n") + 32 :])
        except ValueError:
            continue
        if isinstance(content, dict) and "kernels" in content:
            found.append(path)
    return found


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "flipped": lambda path: path.write_bytes(path.read_bytes().replace(b"float32", b"float64")),
    "empty": lambda path: path.write_bytes(b""),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "loop": lambda path: (path.unlink(), path.symlink_to(path)),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_costs_a_compilation(work: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    first = tf.compile(one(), backend="sim")
    (entry,) = entries(tmp_path)
    DAMAGE[damage](entry)
    work.clear()
    if damage == "folder":  # nothing can be written in its place, which is said once
        with pytest.warns(match="kept in memory only"):
            second = tf.compile(one(), backend="sim")
    else:
        second = tf.compile(one(), backend="sim")
    assert "lower" in work
    assert said(second) == said(first)


FORMS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no kernels": lambda c: c.pop("kernels"),
    "a list": lambda c: c.update(kernels=3),
    "no such kernel": lambda c: c.update(links=[[7, [], []]]),
    "another text": lambda c: c["kernels"][0].update(text=c["kernels"][0]["text"].replace("exp", "cos")),
    "no kernel text": lambda c: c["kernels"][0].update(text="KERNEL"),
    "no such verdict": lambda c: c["kernels"][0].update(standing="believed"),
    "vectors": lambda c: c["kernels"][0].update(vectors=[1]),
    "no fusion": lambda c: c.update(whole="FUSION (", links=[[0, [], []]]),
    "schedule": lambda c: c["kernels"][0].update(schedule=["x"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_entry_that_makes_no_sense_is_none(work: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Its sum is right: somebody else's program wrote it."""
    tf.compile(one(), backend="sim")
    (entry,) = entries(tmp_path)
    disk = compiled.DiskCache(entry.parent, 1 << 30)
    held = disk.get(entry.stem)
    assert held is not None
    content = json.loads(held)
    FORMS[form](content)
    disk.put(entry.stem, json.dumps(content).encode())
    work.clear()
    tf.compile(one(), backend="sim")
    assert "lower" in work


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permissions(work: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0)
    try:
        with pytest.warns(match="kept in memory only"):
            tf.compile(one(), backend="sim")
    finally:
        folder.chmod(stat.S_IRWXU)


def test_threads_and_a_crowd_of_processes(work: list[str], tmp_path: Path) -> None:
    program = "import taskfuse as tf\nfrom tests.runtime.test_decision_cache import chain\nprint(*tf.compile(chain(), backend='sim').kernels)"
    command = ["env", f"TASKFUSE_CACHE_DIR={tmp_path / 'cache'}", sys.executable, "-c", program]
    crowd = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()) for _ in range(2)]
    runs: list[Executable] = []
    threads = [threading.Thread(target=lambda: runs.append(tf.compile(chain(), backend="sim"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = {process.communicate()[0].strip() for process in crowd} | {"\n".join(map(str, [*run.kernels])) for run in runs}
    assert len({text.replace("\n", " ") for text in said}) == 1
    work.clear()
    tf.compile(chain(), backend="sim")
    assert work == []
    assert not list((tmp_path / "cache").glob("*.tmp"))


def test_the_size_is_bounded(work: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKFUSE_CACHE_BYTES", "8K")
    for scale in range(2, 8):
        tf.compile(one(float(scale)), backend="sim")
    assert sum(path.stat().st_size for path in (tmp_path / "cache").iterdir()) <= 8 << 10


def test_a_schedule_from_the_cache_says_what_it_lacks() -> None:
    found = decision_cache.CachedSchedule("matmul", 1.0, "", "because")
    with pytest.raises(AttributeError, match=r"a schedule from the cache has no 'steps', only .*: compile it with cache=False"):
        _ = found.steps
    assert not hasattr(found, "config")

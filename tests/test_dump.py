"""`TASKFUSE_DUMP`: texts on stderr, or whole files."""

from pathlib import Path
from typing import NoReturn

import pytest

import taskfuse as tf
from examples import founding
from taskfuse.dump import EXTENSIONS, dump
from taskfuse.errors import OptionError
from taskfuse.options import Options, read_options


def options(stages: str, folder: Path | None = None) -> Options:
    return read_options({"HOME": "/", "TASKFUSE_DUMP": stages} | ({} if folder is None else {"TASKFUSE_DUMP_DIR": str(folder)}))


def unwanted() -> NoReturn:
    raise AssertionError("nobody asked for it")


def test_only_what_is_asked_for_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    dump("kernel", "cat", unwanted, options(""))
    dump("ptx", "cat", unwanted, options("kernel,cuda"))
    dump("kernel", "cat", lambda: "KERNEL cat()\n", options("kernel,cuda"))
    assert capsys.readouterr() == ("", "== kernel of cat ==\nKERNEL cat()\n\n")


def test_files(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    for stage in EXTENSIONS:
        for text in ("one", "two", "one"):
            dump(stage, "my kernel/1", lambda text=text: text, options("fusion,kernel,cuda,ptx,sass", folder))
    files = sorted(folder.iterdir())
    assert len(files) == 2 * len(EXTENSIONS)
    assert {f.read_text() for f in files} == {"one\n", "two\n"}
    assert {f.name.split(".")[0] for f in files} == {"my_kernel_1"}
    assert {f.suffix for f in files} == {".fusion", ".kir", ".cu", ".ptx", ".sass"}
    assert {len(f.name.split(".")[1]) for f in files} == {12}


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match=r"environment variable TASKFUSE_DUMP_DIR: cannot write to .*file"):
        dump("cuda", "k", lambda: "text", options("cuda", tmp_path / "file"))


def test_nothing_is_left_of_a_file_that_is_not_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: str, target: Path) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OptionError, match="No space left on device"):
        dump("cuda", "k", lambda: "text", options("cuda", tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_compile_dumps_its_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fusion = founding.build()
    monkeypatch.setenv("TASKFUSE_DUMP", "fusion,kernel")
    tf.compile(fusion, backend="sim")
    assert capsys.readouterr().err == f"== fusion of cat ==\n{str(fusion).rstrip()}\n\n== kernel of cat ==\n{str(tf.lower(fusion)).rstrip()}\n\n"
    monkeypatch.setenv("TASKFUSE_DUMP_DIR", str(tmp_path))
    tf.compile(fusion, backend="sim")
    (kernel,) = tmp_path.glob("cat.*.kir")
    assert tf.parse_kernel(kernel.read_text()) == tf.lower(fusion)
    assert capsys.readouterr().err == ""


def test_compile_dumps_steps_of_lowering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fusion = founding.build()
    monkeypatch.setenv("TASKFUSE_DUMP", "plan:nest,plan:barriers")
    tf.compile(fusion, backend="sim")
    heads = [line for line in capsys.readouterr().err.splitlines() if line.startswith("==")]
    assert heads == ["== plan:nest of cat ==", "== plan:barriers of cat =="]
    monkeypatch.setenv("TASKFUSE_DUMP_DIR", str(tmp_path))
    tf.compile(fusion, backend="sim")
    assert sorted(path.name.split(".", 2)[2] for path in tmp_path.iterdir()) == ["barriers.plan", "nest.plan"]
    monkeypatch.setenv("TASKFUSE_DUMP", "plan:nets")
    with pytest.raises(OptionError, match=r"TASKFUSE_DUMP: 'plan:nets': lowering has no step nets"):
        tf.compile(fusion, backend="sim")

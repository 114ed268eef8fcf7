"""SASS by NVIDIA's disassembler: where it is, and what it says if it cannot."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from taskfuse.cuda import disassembly
from tests.calls import always
from tests.errors import text_of


def tool(folder: Path, script: str) -> Path:
    """A disassembler of our own."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "nvdisasm"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_one_on_the_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tool(tmp_path, "cat $2")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert disassembly.disassembler() == mine
    assert disassembly.sass(b"code") == "code"


def test_one_that_fails_says_so_without_the_name_of_our_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tool(tmp_path, 'echo "fatal: $2 is of a new kind" >&2; exit 1')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    text = f"the disassembler is not available: {mine} fails: fatal: the cubin is of a new kind\nhelp: use the one of the CUDA release that NVRTC is from"
    assert text_of(lambda: disassembly.sass(b"")) == text
    tool(tmp_path, "exit 3")
    assert f"{mine} fails: exit status 3" in text_of(lambda: disassembly.sass(b""))


def test_the_wheel_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found = disassembly.disassembler()
    assert found is not None
    assert subprocess.run([found, "--version"], check=True, capture_output=True).stdout


def test_the_newest_release_of_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for release in ("cu9", "cu12", "cu13"):
        tool(tmp_path / release / "bin", "")
    monkeypatch.setattr(disassembly, "find_spec", always(SimpleNamespace(submodule_search_locations=[str(tmp_path)])))
    assert disassembly.disassembler() == tmp_path / "cu13" / "bin" / "nvdisasm"


def test_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(disassembly, "find_spec", always(None))
    assert disassembly.disassembler() is None
    assert text_of(lambda: disassembly.sass(b"")) == (
        "the disassembler is not available: nvdisasm is neither on the PATH nor in this Python environment\n"
        "help: pip install nvidia-cuda-nvdisasm, or put a CUDA toolkit's bin on the PATH"
    )

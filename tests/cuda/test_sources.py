"""Digests of the package: of all files that something depends on, and of what is in them."""

import os
import shutil
from pathlib import Path

import pytest

from taskfuse.cuda import cache, sources
from taskfuse.options import Options, read_options


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of four modules in place of taskfuse, in a process that has not looked at it."""
    root = tmp_path / "package"
    for name in ("dtypes", "check/verify", "lowering/lower", "testing/fuzz"):
        path = root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n", encoding="utf-8")
    monkeypatch.setattr(sources, "_ROOT", str(root))
    monkeypatch.setattr(cache, "process_cache", cache.ProcessCache())
    return root


def look(tmp_path: Path) -> sources.Sources:
    """What a new process sees."""
    sources.sources.cache_clear()
    try:
        return sources.sources(settings(tmp_path))
    finally:
        sources.sources.cache_clear()


def settings(tmp_path: Path) -> Options:
    return read_options({"HOME": "/nowhere", "TASKFUSE_CACHE_DIR": str(tmp_path / "cache")})


def test_the_files_are_those_of_the_package() -> None:
    names = [os.path.basename(path) for path in sources.files()]
    assert {"source.py", "verify.py", "reductions.py", "search.py", "nodes.py", "matrix_instructions.py", "dtypes.py", "segmenter.py"} <= set(names)
    assert len(set(sources.files())) == len(names)


@pytest.mark.parametrize(
    ("name", "changed"),
    [("dtypes", (True, True)), ("check/verify", (True, True)), ("lowering/lower", (True, False)), ("testing/fuzz", (False, False))],
)
def test_a_changed_file_changes_what_depends_on_it(package: Path, tmp_path: Path, name: str, changed: tuple[bool, bool]) -> None:
    before = look(tmp_path)
    path = package / f"{name}.py"
    state = path.stat()
    path.write_text(path.read_text(encoding="utf-8").upper(), encoding="utf-8")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))  # of the same size and time
    after = look(tmp_path)
    assert (after.all != before.all, after.checker != before.checker) == changed


def test_the_same_contents_elsewhere_have_the_same_digest(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = look(tmp_path)
    shutil.copytree(package, tmp_path / "copy")
    monkeypatch.setattr(sources, "_ROOT", str(tmp_path / "copy"))
    assert look(tmp_path) == before


def test_files_that_look_as_before_are_not_read(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = look(tmp_path)
    monkeypatch.setattr(sources, "read", lambda: pytest.fail("read"))
    assert look(tmp_path) == before


def test_a_damaged_glance_is_none(package: Path, tmp_path: Path) -> None:
    before = look(tmp_path)
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(b"rubbish")
    assert look(tmp_path) == before

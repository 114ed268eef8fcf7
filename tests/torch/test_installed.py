"""The key of the torch in use: from the record of its installation, or by torch where that does not say what is there."""

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch._inductor import codecache

from taskfuse.torch.installed import SLACK_NS, recorded, torch_key
from taskfuse.torch.stand_ins import short_keys


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A package with a module, and the record of its installation."""
    record(tmp_path / "torch", "sha256=a")
    (tmp_path / "torch" / "inner").mkdir(parents=True)
    (tmp_path / "torch" / "inner" / "module.py").write_text("1")
    recorded.cache_clear()
    return tmp_path / "torch"


def record(folder: Path, digest: str, version: str = "2.11.0") -> Path:
    """The record of a version."""
    path = folder.parent / f"torch-{version}.dist-info" / "RECORD"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"torch/inner/module.py,{digest},1")
    recorded.cache_clear()
    return path


def test_the_record_says_what_is_there(folder: Path) -> None:
    first = recorded(folder)
    assert first is not None
    record(folder, "sha256=b")
    assert recorded(folder) not in (None, first)
    record(folder, "sha256=b", "2.12.0")  # which of the two is it?
    assert recorded(folder) is None


@pytest.mark.parametrize(("name", "is_known"), [("inner/module.py", False), ("test/module.py", True), ("inner/module.pyc", True)])
def test_a_module_that_is_newer_than_the_record(folder: Path, name: str, is_known: bool) -> None:
    later = record(folder, "sha256=a").stat().st_mtime_ns + 2 * SLACK_NS
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("2")
    os.utime(path, ns=(later, later))
    assert (recorded(folder) is not None) is is_known


def test_without_a_record_torch_reads_its_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__file__", str(folder / "__init__.py"))
    known = torch_key(bytes)
    assert known
    assert known == recorded(folder)
    record(folder, "sha256=a").unlink()
    assert torch_key(lambda: b"read") == b"read"


@pytest.mark.skipif(not list(Path(torch.__file__).parents[1].glob("torch-*.dist-info/RECORD")), reason="torch was built from source")
def test_the_torch_of_a_wheel_has_a_record() -> None:
    recorded.cache_clear()
    with short_keys():
        assert codecache.torch_key() == recorded(Path(torch.__file__).parent)

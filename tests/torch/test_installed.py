"""The key of the torch in use: from the record of its installation, or by torch where that does not say what is there."""

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch._inductor import codecache

from taskfuse.torch.installed import SLACK_NS, recorded, torch_key
from taskfuse.torch.stand_ins import short_keys


@pytest.fixture
def installed(tmp_path: Path) -> tuple[Path, Path]:
    """A package with a module, and its record."""
    package, record = tmp_path / "torch", tmp_path / "RECORD"
    (package / "inner").mkdir(parents=True)
    (package / "inner" / "module.py").write_text("1")
    record.write_text("torch/inner/module.py,sha256=a,1")
    recorded.cache_clear()
    return package, record


def test_the_record_says_what_is_there(installed: tuple[Path, Path]) -> None:
    first = recorded(*installed)
    assert first is not None
    installed[1].write_text("torch/inner/module.py,sha256=b,1")
    recorded.cache_clear()
    assert recorded(*installed) not in (None, first)


@pytest.mark.parametrize(("name", "is_known"), [("inner/module.py", False), ("test/module.py", True), ("inner/module.pyc", True)])
def test_a_module_that_is_newer_than_the_record(installed: tuple[Path, Path], name: str, is_known: bool) -> None:
    package, record = installed
    path = package / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("2")
    later = record.stat().st_mtime_ns + 2 * SLACK_NS
    os.utime(path, ns=(later, later))
    assert (recorded(*installed) is not None) is is_known


def test_without_a_record_torch_reads_its_files(installed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    package, record = installed
    monkeypatch.setattr(torch, "__file__", str(package / "__init__.py"))
    assert torch_key(lambda: b"read") == b"read"
    record.unlink()
    assert recorded(package, record) is None


@pytest.mark.skipif(not (Path(torch.__file__).parents[1] / f"torch-{torch.__version__}.dist-info" / "RECORD").exists(), reason="torch was built from source")
def test_the_torch_of_a_wheel_has_a_record() -> None:
    with short_keys():
        assert len(codecache.torch_key()) == 32
    folder = Path(torch.__file__).parent
    assert recorded(folder, folder.parent / f"torch-{torch.__version__}.dist-info" / "RECORD") is not None

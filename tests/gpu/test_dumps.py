"""TASKFUSE_DUMP on a GPU: every stage of a call."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from tests.gpu.programs import scale


def test_every_stage_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKFUSE_DUMP", "fusion,kernel,cuda,ptx,sass")
    monkeypatch.setenv("TASKFUSE_DUMP_DIR", str(tmp_path))
    run = tf.compile(scale(), backend="cuda")
    for shape in ((8, 64), (3, 5)):
        run(torch.ones(shape, device="cuda"))
    found = {path.suffix: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert "KERNEL scale" in found[".kir"]
    assert "__global__" in found[".cu"]
    assert ".visible .entry scale" in found[".ptx"]
    assert "EXIT" in found[".sass"]
    assert "scale" in found[".fusion"]
    assert len(list(tmp_path.iterdir())) == 5  # one variant serves both shapes

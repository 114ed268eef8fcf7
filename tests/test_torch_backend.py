"""The entry point of torch: it names the backend, and the processes that compile start where there is a GPU."""

import tomllib
from importlib import reload
from pathlib import Path
from pkgutil import resolve_name

import pytest

pytest.importorskip("torch")

from taskfuse import torch_backend
from taskfuse.cuda import present
from taskfuse.runtime import workers
from taskfuse.target import DEFAULT
from taskfuse.torch import backend


def test_the_project_names_it() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert resolve_name(project["entry-points"]["torch_dynamo_backends"]["taskfuse"]) is backend


def test_processes_start_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(workers, "start", lambda: started.append("processes"))
    monkeypatch.setattr(present, "found", lambda: None)
    reload(torch_backend)
    assert not started
    monkeypatch.setattr(present, "found", lambda: DEFAULT)
    reload(torch_backend)
    assert started == ["processes"]

"""Fixtures and settings that all tests share."""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from taskfuse.options import VARIABLES
from tests.golden import Golden

# The same cases in every run, so that a commit passes or fails for good; `make fuzz` is what looks further.
settings.register_profile("taskfuse", max_examples=50, deadline=None, derandomize=True, print_blob=True)
settings.load_profile("taskfuse")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="run only the tests with golden files, and rewrite these instead of comparing")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--update-golden"):
        others = [item for item in items if "golden" not in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]
    # Those of random cases come first and side by side: workers take tests in the order of this list, so one of them makes each case once.
    items.sort(key=lambda item: (not hasattr(getattr(item, "module", None), "random_case_of"), item.path))


def worker_of(config: pytest.Config) -> int:
    """The number of this process among those of pytest-xdist; 0 without it."""
    return int(getattr(config, "workerinput", {"workerid": "gw0"})["workerid"].removeprefix("gw"))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Every other worker reads the modules from the last to the first, and each reads from the middle on what the other has compiled. The order of the tests is
    that of their paths."""
    report = yield
    if isinstance(collector, pytest.Directory) and worker_of(collector.config) % 2:
        report.result.reverse()
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of collected tests hold no cycles: Python's collector stays out of them, and seldom comes elsewhere. That is a fifth of the suite's time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        gc.enable()


@pytest.fixture(autouse=True, scope="session")
def no_settings(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Generator[None]:
    """The settings of whoever runs the tests do not count, and their cache stays as it is. All processes of a run share one, which is empty when it begins."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if hasattr(pytestconfig, "workerinput") else base) / "cache"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        for name in VARIABLES:
            patch.delenv(name, raising=False)
        patch.setenv("TASKFUSE_CACHE_DIR", str(folder))
        patch.setenv("TASKFUSE_CACHE_PLANS", "0")  # each test sees what is decided, not what another test was told
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden.check("cat.kir", text)` compares text with the file tests/goldens/cat.kir."""
    return Golden(Path(__file__).parent / "goldens", update=bool(request.config.getoption("--update-golden")))

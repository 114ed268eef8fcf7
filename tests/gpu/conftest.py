"""Tests of this folder run on a GPU with torch; elsewhere one of each module is skipped, and says why, and the others are left out."""

import warnings
from functools import cache
from pathlib import Path

import pytest

from taskfuse.cuda.driver import driver
from taskfuse.errors import CudaUnavailableError

HERE = Path(__file__).parent


@cache
def missing() -> str | None:
    """What keeps these tests from running; ``None``: nothing."""
    try:
        driver().device_count()
    except CudaUnavailableError as error:
        return f"needs a GPU: {error.message}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those that torch raises while it is imported are not ours
            import torch
    except ImportError:
        return "needs torch"
    return None if torch.cuda.is_available() else "needs a torch that sees the GPU"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.is_relative_to(HERE)]
    for item in here:
        item.add_marker(pytest.mark.gpu)
    reason = missing() if here else None
    if reason is not None:
        first = {item.path: item for item in reversed(here)}
        for item in first.values():
            item.add_marker(pytest.mark.skip(reason=reason))
        others = {item for item in here if first[item.path] is not item}
        config.hook.pytest_deselected(items=[*others])
        items[:] = [item for item in items if item not in others]


@pytest.fixture
def hopper() -> None:
    """For tests of kernels with wgmma, which compute capability 9.0 alone has."""
    import torch

    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs compute capability 9.0 (wgmma)")

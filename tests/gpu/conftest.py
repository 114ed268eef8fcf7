"""Tests of this folder run on a GPU with torch; elsewhere each is skipped, and says why."""

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.gpu)
            reason = missing()
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def hopper() -> None:
    """For tests of kernels with wgmma, which compute capability 9.0 alone has."""
    import torch

    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs compute capability 9.0 (wgmma)")

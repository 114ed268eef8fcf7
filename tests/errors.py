"""The texts of errors, as tests compare them: without the lines that quote the tests themselves."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from taskfuse.errors import TaskfuseError


def text(error: BaseException) -> str:
    """The text without the lines that quote a file."""
    return "\n".join(line for line in str(error).split("\n") if not re.match(r"  -->|   \|", line))


def text_of(call: Callable[[], object], kind: type[TaskfuseError] = TaskfuseError) -> str:
    """The text of the error that a call raises."""
    with pytest.raises(kind) as caught:
        call()
    return text(caught.value)


def untyped(value: object) -> Any:
    """A value as somebody hands it over who runs no type checker."""
    return value

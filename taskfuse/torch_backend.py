"""The entry point of torch: what ``torch.compile(model, backend="taskfuse")`` imports, before Dynamo traces the first call.

Importing it starts where there is a GPU the processes that compile fusions, which import taskfuse while this process imports the backend and traces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from taskfuse.cuda.present import found
from taskfuse.runtime.workers import start


def _begun() -> Callable[..., Any]:
    """The backend. The processes start before it is imported."""
    if found() is not None:
        start()
    from taskfuse.torch.dynamo import backend

    return backend


backend = _begun()

"""The entry point of torch: what ``torch.compile(model, backend="taskfuse")`` imports, before Dynamo traces the first call.

Importing it begins where there is a GPU what else the first call would wait for: the processes that compile fusions, which import taskfuse while this process
imports the backend and traces, and the digest of torch's files, a part of its keys of graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from taskfuse.cuda.present import found
from taskfuse.runtime.workers import start


def _begun() -> Callable[..., Any]:
    """The backend. The processes start before it is imported."""
    is_there = found() is not None
    if is_there:
        start()
    from taskfuse.torch.cached import digest_ahead
    from taskfuse.torch.dynamo import backend

    if is_there:
        digest_ahead()
    return backend


backend = _begun()

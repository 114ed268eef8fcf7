"""The entry point of torch: what ``torch.compile(model, backend="taskfuse")`` imports, before Dynamo traces the first call.

Importing it starts the processes that compile fusions where there is a GPU: they import taskfuse while Dynamo and AOTAutograd trace.
"""

from taskfuse.cuda.present import found
from taskfuse.runtime.workers import start
from taskfuse.torch.dynamo import backend

__all__ = ["backend"]

if found() is not None:
    start()

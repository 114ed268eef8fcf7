"""The entry point of torch: what ``torch.compile(model, backend="taskfuse")`` imports, before Dynamo traces the first call.

Importing it begins where there is a GPU what else the first call would wait for: the processes that compile fusions, which import taskfuse while Dynamo and
AOTAutograd trace, and the digest of torch's files, a part of its keys of graphs.
"""

from taskfuse.cuda.present import found
from taskfuse.runtime.workers import start
from taskfuse.torch.cached import digest_ahead
from taskfuse.torch.dynamo import backend

__all__ = ["backend"]

if found() is not None:
    start()
    digest_ahead()

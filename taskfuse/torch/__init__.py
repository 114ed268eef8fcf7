"""``torch.compile(model, backend="taskfuse")``, and fusions as ops of torch; see docs/torch.md. Importing it imports torch."""

from taskfuse.torch.custom_ops import library
from taskfuse.torch.dynamo import backend
from taskfuse.torch.reports import Report, explain

__all__ = ["Report", "backend", "explain", "library"]

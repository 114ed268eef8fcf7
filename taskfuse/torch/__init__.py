"""``torch.compile(model, backend="taskfuse")``, and fusions as ops of torch; see docs/torch.md. Importing it imports torch."""

from taskfuse.torch.backend import backend
from taskfuse.torch.explain import Report, explain
from taskfuse.torch.library import library

__all__ = ["Report", "backend", "explain", "library"]

# Optional, as torch: what a benchmark compares with.

from typing import Any

def __getattr__(name: str) -> Any: ...

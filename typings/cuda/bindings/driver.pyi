# taskfuse/cuda/driver.py says what each function that it calls takes and returns.

from typing import Any

def __getattr__(name: str) -> Any: ...

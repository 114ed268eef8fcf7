# As torch/__init__.pyi: types of torch are not needed.

from typing import Any

def __getattr__(name: str) -> Any: ...

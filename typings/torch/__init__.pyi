# torch is optional and its own types are not needed: the scripts that use it are run on machines that have it.

from typing import Any

def __getattr__(name: str) -> Any: ...

# torch is optional and its own types are not needed: the scripts that use it are run on machines that have it.

from collections.abc import Callable
from typing import Any

def compile(
    model: Callable[[Any], Any]
    | Callable[[Any, Any], Any]
    | Callable[[Any, Any, Any], Any]
    | Callable[[Any, Any, Any, Any], Any]
    | Callable[[Any, Any, Any, Any, Any], Any],
    **options: Any,
) -> Any: ...
def vmap(func: Callable[[Any], Any]) -> Callable[[Any], Any]: ...
def __getattr__(name: str) -> Any: ...

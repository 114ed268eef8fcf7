from pathlib import Path
from typing import Any

def verify(ptx: Path, *, input: Path, timeout_seconds: float = ...) -> dict[str, Any]: ...

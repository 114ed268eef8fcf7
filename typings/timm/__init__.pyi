# Optional: what a benchmark uses.

from typing import Any

def create_model(model_name: str, **options: Any) -> Any: ...

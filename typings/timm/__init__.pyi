"""What benchmarks use of timm."""

from typing import Any

def create_model(model_name: str, **options: Any) -> Any: ...

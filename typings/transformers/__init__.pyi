# Optional: what a benchmark uses.

from typing import Any

class AutoConfig:
    @staticmethod
    def for_model(model_type: str, **parameters: Any) -> Any: ...

class AutoModel:
    @staticmethod
    def from_config(config: Any) -> Any: ...

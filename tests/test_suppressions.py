"""Checkers are satisfied, not silenced: only the CUDA shim, whose libraries are untyped, may suppress a diagnostic of pyright."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
SUPPRESSION = re.compile(r"#\s*(type:\s*ignore|pyright:|mypy:)")


def test_only_the_cuda_shim_suppresses_diagnostics() -> None:
    checked = [path for folder in ("taskfuse", "examples", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]
    assert checked
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in checked
        if not path.is_relative_to(ROOT / "taskfuse" / "cuda")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if SUPPRESSION.search(line)
    ]
    assert found == []

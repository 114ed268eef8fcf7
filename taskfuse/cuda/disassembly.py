"""SASS, the text of machine code, by NVIDIA's disassembler."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from taskfuse.errors import CudaUnavailableError


def disassembler() -> Path | None:
    """The path of ``nvdisasm``: on the PATH, or in the wheel ``nvidia-cuda-nvdisasm``. ``None``: not installed."""
    found = shutil.which("nvdisasm")
    if found is not None:
        return Path(found)
    spec = find_spec("nvidia")  # a namespace package, in one folder of which each CUDA release has a folder: cu13
    folders = [] if spec is None or spec.submodule_search_locations is None else spec.submodule_search_locations
    tools = [tool for folder in folders for tool in Path(folder).glob("cu[0-9]*/bin/nvdisasm")]
    return max(tools, key=lambda tool: [int(digits) for digits in re.findall(r"\d+", tool.parts[-3])], default=None)


def sass(cubin: bytes) -> str:
    """The instructions in ``cubin``.

    Raises:
        CudaUnavailableError: ``nvdisasm`` is not installed, or does not read this cubin.
    """
    tool = disassembler()
    if tool is None:
        reason = "nvdisasm is neither on the PATH nor in this Python environment"
        raise CudaUnavailableError(what="the disassembler", reason=reason, help="pip install nvidia-cuda-nvdisasm, or put a CUDA toolkit's bin on the PATH")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        run = subprocess.run([str(tool), "--print-code", file.name], capture_output=True, text=True, check=False)
    if run.returncode:
        said = run.stderr.strip().splitlines() or [f"exit status {run.returncode}"]
        reason = f"{tool} fails: {said[0].replace(file.name, 'the cubin')}"
        raise CudaUnavailableError(what="the disassembler", reason=reason, help="use the one of the CUDA release that NVRTC is from")
    return run.stdout

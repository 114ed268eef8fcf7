"""taskfuse: a task-parallel fusion compiler.

Describe tensor math as a :class:`Fusion`, partition it into tasks, arrange the tasks in groups, parallelize the groups. :func:`lower` makes one
kernel whose members run side by side, and :func:`compile` a function on arrays. Start with README.md.
"""

import sys
from typing import TYPE_CHECKING

from taskfuse import errors, ops, schedulers, tiles
from taskfuse.dtypes import (
    DType,
    bfloat16,
    bool_,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from taskfuse.ir import atoms, readers, scalar
from taskfuse.ir.dims import Dim
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.parser import parse_fusion
from taskfuse.ir.tasks import Group, Task
from taskfuse.ir.tensor import Scalar, TensorView
from taskfuse.ir.types import GroupKind, MemoryType, ParallelType, PlaceSearch
from taskfuse.ir.values import MODULAR, NATIVE
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.lowering import LoweringOptions, lower
from taskfuse.ops import *
from taskfuse.ops.registry import elsewhere
from taskfuse.runtime.compile import as_stored, compile
from taskfuse.runtime.executable import Executable
from taskfuse.runtime.readers import KernelReaders
from taskfuse.schedule import layouts
from taskfuse.schedule.allocation import AllocationBuilder, allocation
from taskfuse.schedule.cascade import cascade
from taskfuse.schedule.chunk_cascade import chunk_cascade
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.propagate import parallelize_like
from taskfuse.schedule.segment import SegmentedFusion, segment
from taskfuse.schedule.split_products import split_products
from taskfuse.schedule.widen import widened
from taskfuse.schedulers.horizontal import horizontal, horizontal_cost
from taskfuse.sim import Interleaving
from taskfuse.target import Target
from taskfuse.version import VERSION

__version__ = VERSION

__all__: list[str] = [
    "MODULAR",
    "NATIVE",
    "AllocationBuilder",
    "DType",
    "Dim",
    "Executable",
    "Fusion",
    "Group",
    "GroupKind",
    "Interleaving",
    "Kernel",
    "KernelReaders",
    "LoweringOptions",
    "MemoryType",
    "ParallelType",
    "PlaceSearch",
    "Scalar",
    "SegmentedFusion",
    "Target",
    "Task",
    "TensorView",
    "allocation",
    "as_stored",
    "atoms",
    "bfloat16",
    "bool_",
    "cascade",
    "chunk_cascade",
    "compile",
    "copy_fusion",
    "errors",
    "float8_e4m3",
    "float8_e5m2",
    "float16",
    "float32",
    "float64",
    "horizontal",
    "horizontal_cost",
    "int8",
    "int16",
    "int32",
    "int64",
    "layouts",
    "lower",
    "parallelize_like",
    "parse_fusion",
    "parse_kernel",
    "readers",
    "scalar",
    "schedulers",
    "segment",
    "split_products",
    "tiles",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "widened",
]
__all__ += ops.__all__


def __dir__() -> list[str]:
    """The public names, without modules that the package imports."""
    return sorted({*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"})


if not TYPE_CHECKING:  # a type checker knows all names there are

    def __getattr__(name: str) -> object:
        """:mod:`taskfuse.torch`, which imports torch; names that NumPy and torch have for ops of other names are errors that tell them."""
        if name == "torch":
            from taskfuse.torch import __name__ as found

            return sys.modules[found]
        raise AttributeError(f"taskfuse has no {name!r}{elsewhere(name)}")

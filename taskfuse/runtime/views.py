"""Views passed as arrays: of other shape and strides, on the memory of an array of the caller or of a kernel."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from taskfuse import ops
from taskfuse.errors import FusionError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Expr, evaluate
from taskfuse.ir.storage import Strided, strided
from taskfuse.runtime.executable import Executable
from taskfuse.runtime.kernel import one_kernel
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.parts import Parts
from taskfuse.schedulers.fallback import fallback

if TYPE_CHECKING:
    from taskfuse.options import Backend


class StridedView:
    """A view of a fusion, made of the array of the tensor behind it: without a copy of a row-major array of NumPy, torch or CuPy, else by a kernel.

    Attributes:
        base: name of the tensor behind it.
        names: of what is read by the kernel that copies it, if there is one.

    Args:
        name: of the view.

    Raises:
        FusionError: it has no strides.
    """

    def __init__(self, fusion: Fusion, name: str, backend: Backend) -> None:
        self._fusion = fusion
        self._name = name
        self._backend: Backend = backend
        found = strided(fusion, fusion.tensor(name))
        if found is None:
            raise FusionError(fusion=fusion.name, reason=f"a kernel reads {name}, which no other kernel makes and which is not a view with strides")
        self._place: Strided = found
        self._copy: Executable | None = None
        self.names: tuple[str, ...] = ()
        self.base = found.tensor.name

    def of(self, values: Mapping[str, Any], sizes: Mapping[str, int], stream: Any, seed: int) -> Any:
        """The view.

        Args:
            values: arrays by the names of tensors.
            sizes: values of the dimensions, as far as they are known.
        """
        place = self._place
        wanted = (*place.shape, *place.strides, place.start)
        made = None
        if all(name in sizes for e in wanted for name in e.free):
            numbers = [_number(e, sizes) for e in wanted]
            rank = len(place.shape)
            made = _as_strided(values[self.base], numbers[:rank], numbers[rank:-1], numbers[-1])
        return self._copied(values, stream, seed) if made is None else made

    def _copied(self, values: Mapping[str, Any], stream: Any, seed: int) -> Any:
        if self._copy is None:
            whole, tensors = copy_fusion(self._fusion)
            copy = ops.copy(tensors[self._fusion.tensor(self._name)])
            whole.add_output(copy)
            part = Parts(whole).extract([copy], f"{self._fusion.name}_{self._name}")
            fallback(part)
            self.names = tuple(tv.name for tv in part.inputs)
            self._copy = one_kernel(part, self._backend)
        (made,) = self._copy(*[values[name] for name in self.names], stream=stream, seed=seed)
        return made


def _number(e: Expr, sizes: Mapping[str, int]) -> int:
    return int(evaluate(e, {name: sizes[name] for name in e.free}))


def _as_strided(array: Any, shape: Sequence[int], strides: Sequence[int], start: int) -> Any | None:
    """A view of a row-major array, by strides in elements; ``None`` for other arrays."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(array, torch.Tensor):
        return array.as_strided(shape, strides, array.storage_offset() + start) if array.is_contiguous() else None
    as_strided: Callable[..., Any]
    if isinstance(array, np.ndarray):
        as_strided = np.lib.stride_tricks.as_strided
    elif cupy is not None and isinstance(array, cupy.ndarray):
        as_strided = cupy.lib.stride_tricks.as_strided
    else:
        return None
    if not array.flags.c_contiguous:
        return None
    return as_strided(array.reshape(-1)[start:], tuple(shape), tuple(s * array.itemsize for s in strides))

"""A fusion of a graph as a function on torch tensors: its kernels, or for tests its reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from taskfuse.errors import InputError, OutputError
from taskfuse.ir.arguments import bind_shapes
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.parser import parse_fusion
from taskfuse.ir.scalar import evaluate
from taskfuse.runtime.executable import Executable
from taskfuse.runtime.results import Arranged
from taskfuse.torch.bound import BoundCall, CallSite
from taskfuse.torch.metadata import dtype_of, torch_dtype
from taskfuse.torch.settings import Run


@dataclass(slots=True)
class Compiled:
    """A function from the tensors, host numbers and integers of a region to a tuple of tensors.

    Attributes:
        text: the fusion.
        how: see :class:`taskfuse.torch.settings.Settings`.
        tensors: how many of the arguments are tensors; then come ``numbers`` tensors without dimensions on the host, then integers.
        executable: the kernels, unless the reference runs.
        stored: results that are written into tensors that are arguments, with the number of the argument: all others are new tensors.
    """

    text: str
    how: Run
    tensors: int
    numbers: int
    executable: Executable | None = None
    stored: Mapping[int, int] = field(default_factory=dict[int, int])
    _fusion: Fusion | None = field(default=None, repr=False)

    @staticmethod
    def of(fusion: Fusion, text: str, how: Run, numbers: int, executable: Executable | None) -> Compiled:
        """The function of a fusion. Results that would be computed elsewhere and copied into an argument are new tensors: torch copies those of a graph
        together."""
        run = executable.with_new_arrays() if isinstance(executable, Arranged) else executable
        results = run.results if isinstance(run, Arranged) else fusion.results
        places = {tv.name: k for k, tv in enumerate(fusion.inputs)}
        stored = {k: places[r.into.name] for k, r in enumerate(results) if r.into is not None}
        return Compiled(text, how, len(fusion.inputs), numbers, run, stored)

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        try:
            return self._run(args)
        except OutputError:  # another argument overlaps one that is written
            if not self.stored:
                raise
            return self._apart(args)
        except InputError:  # some ops of torch return other dtypes than it says while it traces: batch norm of 16-bit floats on the host
            fitting = self._fitting(args)
            if all(a is b for a, b in zip(args, fitting, strict=True)):
                raise
            return self._run(fitting)

    def site(self, rebind: Callable[[BoundCall], None], sized: bool) -> BoundCall:
        """What a graph calls.

        Args:
            rebind: called with what the graph calls instead from then on.
            sized: whether a call gives the values of symbols first, on which extents and strides depend.
        """
        if self.how != "kernels" or self.numbers:
            return self._without_sizes if sized else self
        site = CallSite(self, self.tensors, None if sized else rebind)
        return site.sized if sized else site.fixed

    def _without_sizes(self, sizes: tuple[int, ...], *args: Any) -> tuple[Any, ...]:
        return self(*args)

    def _fitting(self, args: Sequence[Any]) -> list[Any]:
        """The arguments with tensors in the dtypes of the fusion."""
        wanted = [torch_dtype(tv.dtype) for tv in parse_fusion(self.text).inputs]
        return [x.to(dtype) for x, dtype in zip(args[: self.tensors], wanted, strict=True)] + list(args[self.tensors :])

    def _run(self, args: Sequence[Any]) -> tuple[Any, ...]:
        if self.how == "kernels":
            assert self.executable is not None
            if not self.numbers:
                return self.executable(*args)
            first, rest = args[: self.tensors], args[self.tensors + self.numbers :]
            return self.executable(*first, *(x.item() for x in args[self.tensors : self.tensors + self.numbers]), *rest)
        return self._on_host(args)

    def _apart(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results of a call with copies of the tensors that are written to."""
        copies = {k: args[k].clone() for k in self.stored.values()}
        made = list(self._run(tuple(copies.get(k, x) for k, x in enumerate(args))))
        for k, position in self.stored.items():
            made[k] = args[position].copy_(made[k])
        return tuple(made)

    def _on_host(self, args: Sequence[Any]) -> tuple[Any, ...]:
        count = self.tensors
        arrays = [array(x) for x in args[:count]]
        numbers = [x.item() for x in args[count : count + self.numbers]]
        rest = args[count + self.numbers :]
        if self._fusion is None:
            self._fusion = parse_fusion(self.text)
        if self.executable is not None:
            made = self.executable(*arrays, *numbers, *rest)
        else:
            with np.errstate(all="ignore"):
                made = self._fusion.evaluate(*arrays, *numbers, *rest)
        extents = bind_shapes(self._fusion, [x.shape for x in arrays], args[len(args) - len(self._fusion.integers) :])
        strides = [None if r.strides is None else [int(evaluate(s, extents)) for s in r.strides] for r in self._fusion.results]
        return self._kept(args, (_laid(tensor(y), wanted) for y, wanted in zip(made, strides, strict=True)))

    def _kept(self, args: Sequence[Any], made: Iterable[Any]) -> tuple[Any, ...]:
        """Results, those that are written into arguments there."""
        return tuple(args[self.stored[k]].copy_(y) if k in self.stored else y for k, y in enumerate(made))

    def __reduce__(self) -> tuple[Any, ...]:
        return Compiled, (self.text, self.how, self.tensors, self.numbers, self.executable, self.stored)


def array(x: Any) -> Any:
    """A tensor on the host as an array, of dtypes that NumPy lacks, too."""
    kind = dtype_of(x.dtype)
    x = x.detach()
    words = {1: torch.uint8, 2: torch.int16}.get(kind.itemsize)
    if not kind.is_float or kind.bits >= 32 or words is None:
        return x.numpy()
    return x.view(words).numpy().view(kind.numpy)


def tensor(y: Any) -> Any:
    """An array as a tensor of its own."""
    y = np.array(y, order="C", copy=True)
    kind = dtype_of(y.dtype.name)
    if not y.size:  # strides of empty arrays are 0
        return torch.empty(y.shape, dtype=torch_dtype(kind))
    if not kind.is_float or kind.bits >= 32:
        return torch.from_numpy(y)
    return torch.from_numpy(y.view({1: np.uint8, 2: np.int16}[kind.itemsize])).view(torch_dtype(kind))


def _laid(y: Any, strides: Sequence[int] | None) -> Any:
    """The tensor in memory of given strides."""
    return y if strides is None else torch.empty_strided(y.shape, strides, dtype=y.dtype).copy_(y)

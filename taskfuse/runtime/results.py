"""Results as a fusion declares them: arrays with strides, arrays in place of inputs, inputs themselves, and repeated arrays.

Kernels store each output once, into an array. This module determines these arrays, and makes the results of a call from them. An automatic schedule does not
see
strides: it is made for arrays whose axes are in memory order (:mod:`taskfuse.runtime.memory_order`), and a call passes views in that order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from taskfuse.cuda.arrays import Unfit, is_on_host
from taskfuse.errors import InputError, LaunchError, OutputError
from taskfuse.ir.arguments import bind_shapes
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import Read
from taskfuse.ir.fusion import Fusion, Result
from taskfuse.ir.storage import Strided, has_code, needed, resolve, storage_reads, strided
from taskfuse.ir.tensor import TensorView
from taskfuse.kir import Kernel
from taskfuse.runtime.arrays import empty, part, permuted, strides_of
from taskfuse.runtime.chain import Chain, copies_of
from taskfuse.runtime.executable import Executable, ResultAdapter
from taskfuse.runtime.memory_order import Order
from taskfuse.runtime.views import number, placed
from taskfuse.schedule.copy import copy_fusion

if TYPE_CHECKING:
    from taskfuse.check import Certificate


class Arranged(ResultAdapter):
    """An executable whose results have the strides and arrays that a fusion declares.

    Args:
        fusion: its computation, with the declared results.
        run: computes the outputs.
        orders: arguments and outputs of ``run`` whose axes are permuted, with the permutation.
    """

    __slots__ = ("_copies", "_inputs", "_orders", "_places", "_read", "_results", "_shapes")

    def __init__(self, fusion: Fusion, run: Executable, orders: Mapping[str, Order]) -> None:
        super().__init__(fusion, run)
        self._orders = dict(orders)
        self._copies: Executable | None = None
        self._inputs = {tv.name: k for k, tv in enumerate(fusion.inputs)}
        self._shapes = {tv.name: (tv.shape, tv.dtype) for tv in fusion.outputs}
        self._results = {r.tensor.name: r for r in reversed(fusion.results)}
        self._read = {read.tensor.name for e in needed(fusion) if has_code(fusion, e) for read in storage_reads(fusion, e) if read.tensor.is_input}
        self._places: dict[str, tuple[str, Strided | None]] = {}
        for r in fusion.results:
            if r.into is not None:
                found = strided(fusion, r.into)
                self._places[r.tensor.name] = r.into.name if found is None else found.tensor.name, found

    def __call__(self, *args: Any, out: Any = None, stream: Any = None, seed: int = 0, **named: Any) -> tuple[Any, ...]:
        """See :meth:`Executable.__call__`. ``out`` has an array for each result; for inputs, and what is written into one, it can only be theirs."""
        if named:
            args = self.in_order(args, named)
        fusion = self._fusion
        arrays = {name: self._array(args[k]) for name, k in self._inputs.items() if k < len(args)}
        if len(arrays) < len(self._inputs) or not all(hasattr(a, "shape") for a in arrays.values()):
            return self.inner(*args, stream=stream, seed=seed)  # which says what is wrong
        if len(args) != len(fusion.arguments):
            return self.inner(*args, stream=stream, seed=seed)
        sizes = bind_shapes(fusion, [tuple(a.shape) for a in arrays.values()], args[len(args) - len(fusion.integers) :])
        for tv, wanted in fusion.strides.items():
            self._check_strides(tv, arrays[tv.name], [number(e, sizes) for e in wanted])
        given = self._given(out, arrays)
        targets: dict[str, Any] = {}
        own: dict[str, Any] = {}  # what the kernels write, where that is not what is returned
        run = self.inner.at(sizes) if fusion.dims else self.inner
        for name, (shape, dtype) in self._shapes.items():
            extents, result = [number(e, sizes) for e in shape], self._results[name]
            strides = None if result.strides is None else [number(e, sizes) for e in result.strides]
            try:
                if name in self._places:
                    targets[name] = self._place(name, arrays, sizes, given.get(name))
                    if self._places[name][0] in self._read and not _writes(run, name, self._places[name][0]):
                        own[name] = empty(next(iter(arrays.values())), extents, dtype, None, stream)
                elif name in given:
                    targets[name] = given[name]
                else:
                    targets[name] = empty(next(iter(arrays.values()), None), extents, dtype, strides, stream)
            except Unfit as unfit:
                raise OutputError(index=self._index(name), fusion=fusion.name, reason=unfit.reason, help=unfit.help) from None
        if self._shapes:
            passed = {name: self._turned(name, a) for name, a in arrays.items()}
            whole = {name: source for name, (source, view) in self._places.items() if view is None and name not in own}
            made = [passed[whole[name]] if name in whole else self._turned(name, own.get(name, targets[name])) for name in self._shapes]
            run(*passed.values(), *args[len(self._inputs) :], out=tuple(made), stream=stream, seed=seed)
        if own:
            self._copy(own, targets, stream, seed)
        values = {**{name: args[k] for name, k in self._inputs.items()}, **targets}
        for name, (source, view) in self._places.items():
            if view is None:
                values[name] = args[self._inputs[source]]
        return tuple(values[r.tensor.name] for r in fusion.results)

    @property
    def results(self) -> tuple[Result, ...]:
        """What a call returns, and where that is stored."""
        return tuple(self._fusion.results)

    def with_new_arrays(self) -> Arranged:
        """The executable that returns new arrays in place of those that it would compute elsewhere and copy into the array of an input."""
        others = {name for name, (source, _) in self._places.items() if source in self._read and not _writes(self.inner, name, source)}
        if not others:
            return self
        fusion = copy_fusion(self._fusion)[0]
        fusion.results[:] = [replace(r, into=None) if r.tensor.name in others else r for r in fusion.results]
        return Arranged(fusion, self.inner, self._orders)

    @staticmethod
    def _array(arg: Any) -> Any:
        return np.asarray(arg) if is_on_host(arg) else arg

    def _turned(self, name: str, array: Any) -> Any:
        return permuted(array, self._orders[name]) if name in self._orders else array

    def _check_strides(self, tv: TensorView, array: Any, wanted: Sequence[int]) -> None:
        """Raises :class:`InputError` unless an array lies as the fusion declares."""
        index = self._inputs[tv.name]
        try:
            found = strides_of(array)
        except Unfit as unfit:
            raise InputError(index=index, fusion=self._fusion.name, reason=unfit.reason, help=unfit.help) from None
        if 0 not in array.shape and any(n > 1 and a != b for n, a, b in zip(array.shape, found, wanted, strict=True)):
            reason = f"'{tv.name}' has the strides {list(found)}, in elements, but is declared with {list(wanted)}"
            raise InputError(index=index, fusion=self._fusion.name, reason=reason, help="pass an array that lies so, or leave out strides= in define_tensor")

    def _given(self, out: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """``out`` by the names of outputs. Raises :class:`OutputError` if it does not fit."""
        if out is None:
            return {}
        results = self._fusion.results
        listed = tuple(cast("Sequence[Any]", out)) if isinstance(out, tuple | list) else (out,)
        if len(listed) != len(results):
            reason = f"out= has {len(listed)} arrays; there are {len(results)} results"
            raise OutputError(index=min(len(listed), len(results)), fusion=self._fusion.name, reason=reason)
        found: dict[str, Any] = {}
        for index, (r, array) in enumerate(zip(results, listed, strict=True)):
            name = r.tensor.name
            fixed = arrays.get(name, found.get(name))
            if fixed is not None and fixed is not array:
                reason = f"'{name}' is {'an input' if name in arrays else 'an earlier result'}, which is returned as it is"
                raise OutputError(index=index, fusion=self._fusion.name, reason=reason, help="give that array here, too, or return a copy")
            if name not in arrays:
                found[name] = array
        return found

    def _place(self, name: str, arrays: Mapping[str, Any], sizes: Mapping[str, int], given: Any) -> Any:
        """What an output is written into, in the array of an input. Raises :class:`OutputError` if ``out=`` has another array there."""
        source, view = self._places[name]
        array: Any = arrays[source]
        if given is not None and given is not array:
            reason = f"'{name}' is written into the array of '{source}'"
            raise OutputError(index=self._index(name), fusion=self._fusion.name, reason=reason, help="leave out out=, or give that array")
        if is_on_host(array) and not array.flags.writeable:
            raise OutputError(index=self._index(name), fusion=self._fusion.name, reason=f"it is written into '{source}', which is read-only")
        if view is None:
            return array
        shape = [number(e, sizes) for e in view.shape]
        wanted = [number(e, sizes) for e in self._shapes[name][0]]
        if shape != wanted:
            reason = f"'{name}' has shape {wanted}, and the part of '{source}' that it is written into has shape {shape}"
            raise OutputError(index=self._index(name), fusion=self._fusion.name, reason=reason, help=f"'{source}' has shape {list(array.shape)}")
        into = self._results[name].into
        assert into is not None
        read = resolve(self._fusion, Read(into, tuple(iteration_symbol(k) for k in range(into.ndim))))
        found = placed(read, view, array, sizes)
        if found is None:
            reason = f"it is written into a view of '{source}' that an array with the strides {list(strides_of(array))} does not have"
            raise OutputError(index=self._index(name), fusion=self._fusion.name, reason=reason, help="pass a row-major array")
        if found.outside is not None:
            first, last = map(list, found.outside)
            reason = f"it is written into {first} to {last} of '{source}', whose shape is {list(array.shape)}"
            raise OutputError(index=self._index(name), fusion=self._fusion.name, reason=reason)
        return part(array, shape, found.strides, found.start)

    def _index(self, name: str) -> int:
        return next(k for k, r in enumerate(self._fusion.results) if r.tensor.name == name)

    def _copy(self, own: Mapping[str, Any], targets: Mapping[str, Any], stream: Any, seed: int) -> None:
        """Write what was computed where it belongs, now that its previous contents are no longer read."""
        if self._copies is None or self._copies.arguments != tuple(own):
            names = set(own)
            self._copies = copies_of(self._fusion.name, [tv for tv in self._fusion.outputs if tv.name in names], self.backend)
        self._copies(*own.values(), out=tuple(targets[name] for name in own), stream=stream, seed=seed)

    def __reduce__(self) -> tuple[Any, ...]:
        return Arranged, (self._fusion, self.inner, self._orders)

    def __repr__(self) -> str:
        return f"Arranged({self.inner!r})"


class Nothing(Executable):
    """The executable of a fusion that only returns inputs, without a kernel."""

    __slots__ = ("_fusion",)

    def __init__(self, fusion: Fusion, backend: Any) -> None:
        super().__init__(backend, None)
        self._fusion = fusion

    @property
    def kernel(self) -> Kernel:
        raise LaunchError(kernel=self.name, reason="it returns its inputs, and runs no kernel")

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return ()

    @property
    def certificate(self) -> Certificate:
        raise LaunchError(kernel=self.name, reason="it returns its inputs, and runs no kernel")

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        return ()

    @property
    def is_open(self) -> bool:
        return False

    def check_open(self, extents: Mapping[str, int]) -> None:
        """Does nothing: no proof is open."""

    @property
    def name(self) -> str:
        return self._fusion.name

    @property
    def arguments(self) -> tuple[str, ...]:
        return self._fusion.arguments

    def __call__(self, *args: Any, out: Any = None, stream: Any = None, seed: int = 0, **named: Any) -> tuple[Any, ...]:
        self.in_order(args, named)
        return ()

    def __reduce__(self) -> tuple[Any, ...]:
        return Nothing, (self._fusion, self.backend)


def _writes(run: Executable, name: str, source: str) -> bool:
    """True if the kernels that run are proved to write an output into the array of an input that one of them reads."""
    if isinstance(run, Chain):
        return run.writes(name, source)
    kernels = run.kernels
    return len(kernels) == 1 and kernels[0].in_place.get(name) == source

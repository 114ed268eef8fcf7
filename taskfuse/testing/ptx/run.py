"""Runs the PTX of a kernel on arrays, without a GPU: all threads of all blocks, with the values that they load, compute and store.

Threads are coroutines (:func:`~taskfuse.testing.ptx.machine.data_machine`). One runs until it must wait for others, then another one: memory is sequentially
consistent, and copies are done at once. Whether enough is waited for is not asked here; the proof and :mod:`taskfuse.testing.ptx.compare` are for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.cuda.signature import Source, TensorMapArgument, WorkspaceArgument
from taskfuse.dtypes import DType
from taskfuse.errors import InputError
from taskfuse.kir import Kernel
from taskfuse.kir.arguments import bind_symbols, check_count, check_rank, wanted
from taskfuse.kir.declarations import IntegerParam, ScalarParam, TensorMapParam, TensorParam
from taskfuse.target import WARP
from taskfuse.testing.ptx.bulk import TensorMap
from taskfuse.testing.ptx.launch import DATA_AT, PARAMS_AT, SHARED_AT, Int3, launches, linear, number
from taskfuse.testing.ptx.machine import data_machine
from taskfuse.testing.ptx.nodes import PtxError
from taskfuse.testing.ptx.scheduler import PtxScheduler
from taskfuse.testing.ptx.storage import ALLOCATION, POISON, Storage
from taskfuse.testing.ptx.text import read
from taskfuse.testing.ptx.threads import PtxBlock, PtxCluster, PtxThread, PtxWarp
from taskfuse.testing.ptx.unknown import LOCAL

Array = NDArray[Any]
Argument = NDArray[Any] | float | int


def run(
    kernel: Kernel, source: Source, ptx: str, arguments: Sequence[Argument], *, extents: Mapping[str, int] | None = None, seed: int = 0
) -> tuple[Array, ...]:
    """Run the PTX of a text, as :meth:`Kernel.simulate` runs the kernel.

    Args:
        kernel, source: the kernel, and its text in one variant, whose layouts the arrays get.
        ptx: what NVRTC made of the text.
        arguments: inputs (arrays of any strides, which are not written), run-time scalars and integers, in the order of the parameters.
        extents: values of the extents that no input's shape determines.
        seed: picks the order of threads.

    Returns:
        The outputs, in the order of the parameters.

    Raises:
        InputError: arguments that do not fit the kernel's parameters.
        PtxError: an instruction that is not known, an access outside of all memory or not aligned to its size, a write between the elements of a
            tensor, or threads that wait for ever.
    """
    run = _Run(kernel, source, ptx, arguments, extents, seed)
    run.run()
    return run.results()


class _Run:
    """A launch with its memory."""

    def __init__(self, kernel: Kernel, source: Source, ptx: str, arguments: Sequence[Argument], extents: Mapping[str, int] | None, seed: int) -> None:
        self._kernel = kernel
        self._source = source
        self._seed = seed
        inputs, scalars, symbols = _bound(kernel, arguments, extents)
        function = read(ptx)
        launch = launches(kernel, source, function, symbols, scalars)
        self._shapes = {p.name: tuple(number(e, symbols) for e in p.shape) for p in kernel.params if isinstance(p, TensorParam)}
        self._dtypes = {p.name: p.dtype for p in kernel.params if isinstance(p, TensorParam)}
        self._allocations: dict[int, bytearray] = {}
        if launch is None:
            if any(np.prod(self._shapes[p.name], dtype=int) for p in kernel.outputs):
                raise PtxError(0, "a GPU would refuse this launch")
            return
        self._launch = launch
        self._program = data_machine(function)
        self._fill(inputs)

    def run(self) -> None:
        """Run all blocks: at once if they wait for each other, else cluster after cluster."""
        if not self._allocations:
            return
        launch, program = self._launch, self._program
        at = {**launch.at}
        for name, place in program.private.items():
            array = program.function.data.get(name)
            at[name] = place if array is not None and array.space == "local" else LOCAL + place
        for f in program.function.callees.values():
            at |= {name: program.private[name] for name, array in f.data.items() if array.space == "local"}
        maps = self._maps()
        firsts = product(*(range(0, n, c) for n, c in zip(launch.grid, launch.cluster, strict=True)))
        groups = [self._cluster(first, at) for first in firsts] if self._source.cooperative else (self._cluster(first, at) for first in firsts)
        if self._source.cooperative:
            groups = [[t for group in groups for t in group]]
        for group in groups:
            PtxScheduler(program.code, maps, self._seed).run(group)

    def results(self) -> tuple[Array, ...]:
        """The outputs. Raises :class:`PtxError` if bytes between their elements were written."""
        found: list[Array] = []
        for p in self._kernel.outputs:
            shape, dtype = self._shapes[p.name], p.dtype
            array: Array = np.zeros(shape, dtype.numpy)
            if array.size and self._allocations:
                bytes_ = np.frombuffer(self._allocations[self._launch.bases[p.name] >> ALLOCATION], np.uint8)
                places = self._places(p.name)
                array = bytes_[places].reshape(-1).view(dtype.numpy).reshape(shape)
                between = np.ones(len(bytes_), np.bool_)
                between[places.reshape(-1)] = False
                if (bytes_[between] != POISON).any():
                    raise PtxError(0, f"'{p.name}' was written between its elements")
            found.append(array)
        return tuple(found)

    # -- memory -------------------------------------------------------------------------------------------------------------------------

    def _places(self, name: str) -> NDArray[np.int64]:
        """The offset of each byte of each element of a tensor."""
        size = self._dtypes[name].itemsize
        index = np.zeros(self._shapes[name], np.int64)
        for axis, stride in enumerate(self._launch.strides[name]):
            steps = np.arange(self._shapes[name][axis], dtype=np.int64) * stride * size
            index += steps.reshape(-1, *(1,) * (index.ndim - axis - 1))
        return index[..., None] + np.arange(size)

    def _fill(self, inputs: Mapping[str, Array]) -> None:
        launch, source = self._launch, self._source
        places = launch.bases
        for name, shape in self._shapes.items():
            of = self._kernel.in_place.get(name)
            if of is not None:
                self._allocations[places[name] >> ALLOCATION] = self._allocations[places[of] >> ALLOCATION]
                continue
            offsets = self._places(name)
            memory = np.full(int(offsets.max()) + 1 if offsets.size else 0, POISON, np.uint8)
            if name in inputs and offsets.size:
                content = np.ascontiguousarray(inputs[name]).reshape(shape)
                memory[offsets] = content.view(np.uint8).reshape(offsets.shape) if shape else np.frombuffer(content.tobytes(), np.uint8)
            self._allocations[places[name] >> ALLOCATION] = bytearray(memory.tobytes())
        for argument in source.arguments:
            if isinstance(argument, WorkspaceArgument):
                size = number(argument.bytes, launch.symbols)
                self._allocations[places[argument.name] >> ALLOCATION] = bytearray((b"\0" if argument.zero else bytes([POISON])) * size)
        words = {address: word for address, word in launch.words.items() if PARAMS_AT <= address < DATA_AT}
        end = max((address + len(word) for address, word in words.items()), default=PARAMS_AT)
        parameters = bytearray([POISON]) * (end - PARAMS_AT)
        for address, word in words.items():
            parameters[address - PARAMS_AT : address - PARAMS_AT + len(word)] = word
        self._allocations[PARAMS_AT >> ALLOCATION] = parameters
        for address, (size, values) in launch.data.items():
            self._allocations[address >> ALLOCATION] = bytearray(b"".join((v & (1 << 8 * size) - 1).to_bytes(size, "little") for v in values))

    def _maps(self) -> dict[int, TensorMap]:
        found: dict[int, TensorMap] = {}
        params = {p.name: p for p in self._kernel.params if isinstance(p, TensorMapParam)}
        for argument in self._source.arguments:
            if isinstance(argument, TensorMapArgument):
                p = params[argument.name]
                base = self._launch.bases
                dtype = self._dtypes[p.tensor]
                strides = tuple(dtype.itemsize * s for s in reversed(self._launch.strides[p.tensor]))
                shape = tuple(reversed(self._shapes[p.tensor]))
                found[base[p.name]] = TensorMap(
                    base[p.tensor], dtype.itemsize, _kind(dtype), shape, strides, tuple(reversed(p.box)), tuple(reversed(p.step)), p.swizzle
                )
        return found

    # -- threads ------------------------------------------------------------------------------------------------------------------------

    def _cluster(self, first: tuple[int, ...], at: Mapping[str, int]) -> list[PtxThread]:
        """The threads of the blocks of a cluster."""
        launch = self._launch
        cluster = PtxCluster()
        places = [(x, y, z) for z, y, x in product(*(range(c) for c in reversed(launch.cluster)))]
        shared = [bytearray([POISON]) * (SHARED_AT + launch.shared_bytes) for _ in places]
        found: list[PtxThread] = []
        for memory, (x, y, z) in zip(shared, places, strict=True):
            index = first[0] + x, first[1] + y, first[2] + z
            block = PtxBlock(cluster)
            cluster.blocks.append(block)
            found += self._threads(index, block, memory, shared, at)
        cluster.threads = len(found)
        return found

    def _threads(self, index: Int3, block: PtxBlock, shared: bytearray, cluster: Sequence[bytearray], at: Mapping[str, int]) -> list[PtxThread]:
        launch, program = self._launch, self._program
        x, y, z = launch.block
        warps = [PtxWarp() for _ in range(-(-x * y * z // WARP))]
        found: list[PtxThread] = []
        for thread in ((i, j, k) for k, j, i in product(range(z), range(y), range(x))):
            n = linear(launch.block, thread)
            warp = warps[n // WARP]
            warp.live |= 1 << n % WARP
            storage = Storage(self._allocations, shared, cluster, bytearray([POISON]) * program.private_bytes)
            coroutine = program.thread(launch.special(index, thread), at, storage)
            found.append(PtxThread(coroutine, block, warp, n, storage, f"block {index}, thread {thread}"))
        return found


def _bound(kernel: Kernel, arguments: Sequence[Argument], extents: Mapping[str, int] | None) -> tuple[dict[str, Array], dict[str, bytes], dict[str, int]]:
    """Inputs, the bytes of scalars, and the values of extents."""
    check_count(kernel, len(arguments))
    inputs: dict[str, Array] = {}
    scalars: dict[str, bytes] = {}
    integers: dict[str, object] = {}
    for index, (param, given) in enumerate(zip(wanted(kernel), arguments, strict=True)):
        match param:
            case ScalarParam():
                scalars[param.name] = np.asarray(given).astype(param.dtype.numpy).tobytes()
            case IntegerParam():
                integers[param.name] = given
            case TensorParam():
                array = np.asarray(given)
                if array.dtype != param.dtype.numpy:
                    raise InputError(index=index, fusion=kernel.name, reason=f"'{param.name}' has dtype {array.dtype}, not {param.dtype}")
                check_rank(kernel, index, param, array.ndim)
                inputs[param.name] = array
    symbols = bind_symbols(kernel, {name: array.shape for name, array in inputs.items()}, extents or {}, integers)
    return inputs, scalars, symbols


def _kind(dtype: DType) -> str:
    """The type as the instructions of bulk updates take it."""
    named = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"}
    return named.get(str(dtype)) or f"{'u' if str(dtype).startswith('u') else 's'}{8 * dtype.itemsize}"

"""Host cost of one call: one input, one output, on a GPU that is never waited for.

``python benchmarks/launch.py [--write]``. All rows run in turn within each round, so that a slow spell of the machine meets all of them;
a row's figure is the median over the rounds of the mean over the calls of a round, in microseconds.
"""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from reporting import machine, parser, publish

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.cuda.abi import CONFIG
from taskfuse.cuda.arrays import kinds, quick_empty
from taskfuse.cuda.nvrtc import CompileOptions, compile_cubin

ROUNDS = 61
CALLS = 200  # per round: fewer launches than a stream queues, so that no call waits for the GPU
SHAPE = (64, 256)
TEXT = """extern "C" __global__ void bare(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1.0f;
}
"""

LENGTHS = 1, 13
"""Kernels of the chains."""
CHAIN, GRAPH = "a chain of {} of our kernels, out=", "a compiled graph of {} fusions, outputs allocated"
OURS = "cuLaunchKernelEx, ctypes, arguments prepared (ours)"
ALLOCATED = "an output of ours, as torch's compiled graphs make it"

Call = Callable[[], object]


def unscheduled() -> tf.Fusion:
    """``y = x + 1``."""
    with tf.Fusion("add_one") as fusion:
        fusion.add_output(tf.define_tensor(["M", "N"], dtype=tf.float32, name="x") + 1)
    return fusion


def add_one() -> tf.Fusion:
    """The same, scheduled."""
    fusion = unscheduled()
    (y,) = fusion.outputs
    y.merge(0).split(0, 256)
    y.axis(0).parallelize(P.BIDx)
    y.axis(1).parallelize(P.TIDx)
    return fusion


def taskfuse_calls(x: Any, out: Any) -> dict[str, Call]:
    """Ours: output allocated or given, row-major or strided input."""
    run = tf.compile(add_one(), backend="cuda")
    strided = torch.empty(SHAPE[1], SHAPE[0], device="cuda").T
    stream = torch.cuda.current_stream()
    run(x)
    specialized = tf.compile(unscheduled(), backend="cuda")
    probe = kinds().probes[type(x)]
    return {
        "taskfuse, output allocated": lambda: run(x),
        "taskfuse, out=": lambda: run(x, out=out),
        "taskfuse, out=, stream=": lambda: run(x, out=out, stream=stream),
        "taskfuse, strided input, output allocated": lambda: run(strided),
        "taskfuse, specialized by shape, output allocated": lambda: specialized(x),
        "a part of that: the probe of an argument": lambda: probe(x),
    }


def chains(x: Any, out: Any) -> dict[str, Call]:
    """Chains of kernels that exchange tensors: as one fusion of ours, as a graph of torch with a fusion for each op, and of as many launches of the driver."""
    from taskfuse.torch import backend

    found: dict[str, Call] = {}
    for length in LENGTHS:
        with tf.Fusion(f"chain{length}") as fusion:
            tv = tf.define_tensor(list(SHAPE), name="x")
            made: list[list[tf.TensorView]] = []
            for _ in range(length):
                tv = tf.sin(tv)
                made.append([tv])
            fusion.add_output(tv)
        run = tf.compile(tf.segment(fusion, made), backend="cuda", specialize=False)

        def sines(x: Any, length: int = length) -> Any:
            for _ in range(length):
                x = torch.sin(x)
            return x

        graph = torch.compile(sines, backend=backend, options={"strict": True, "most": 1})
        for _ in range(3):
            run(x, out=out)
            graph(x)
        found[CHAIN.format(length)] = lambda run=run: run(x, out=out)
        found[GRAPH.format(length)] = lambda graph=graph: graph(x)
    return found


def torch_calls(x: Any, out: Any) -> dict[str, Call]:
    """torch's own calls, and what our call is made of."""
    raw: Any = torch._C._cuda_getCurrentRawStream
    quick: Any = quick_empty(torch, "cuda")
    return {
        "torch.add(x, 1)": lambda: torch.add(x, 1),
        "torch.add(x, 1, out=)": lambda: torch.add(x, 1, out=out),
        "torch.empty(shape)": lambda: torch.empty(SHAPE, dtype=torch.float32, device="cuda"),
        "torch.empty_like(x)": lambda: torch.empty_like(x),
        **({} if quick is None else {ALLOCATED: lambda: quick(SHAPE, (SHAPE[1], 1), torch.float32)}),
        "new_empty_strided(shape, strides) of a tensor": lambda: x.new_empty_strided(SHAPE, (SHAPE[1], 1)),
        "torch.empty_strided(shape, strides)": lambda: torch.empty_strided(SHAPE, (SHAPE[1], 1), dtype=torch.float32, device="cuda"),
        "current raw stream": lambda: raw(0),
        "x.data_ptr()": lambda: x.data_ptr(),
        "x.shape, x.stride(), x.dtype, x.device": lambda: (x.shape, x.stride(), x.dtype, x.device),
        "key of a dict lookup": lambda: hash((x.shape, x.stride(), x.dtype, x.device, x.data_ptr() & 15)),
    }


def bare_calls(x: Any, out: Any) -> dict[str, Call]:
    """The driver's launch, through cuda.bindings, through ctypes, and as a call of ours makes it, with everything else prepared."""
    bindings: Any = __import__("cuda.bindings.driver", fromlist=["driver"])
    major, minor = torch.cuda.get_device_capability()
    binary = compile_cubin(TEXT, "bare", CompileOptions(arch=f"sm_{major}{minor}"))
    _, module = bindings.cuModuleLoadData(binary.code)
    _, function = bindings.cuModuleGetFunction(module, b"bare")
    values = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_int(x.numel())
    addresses = (ctypes.c_void_p * 3)(*(ctypes.addressof(v) for v in values))
    blocks = -(-x.numel() // 256)
    stream = torch.cuda.current_stream().cuda_stream
    typed = bindings.CUstream(stream)
    address = ctypes.addressof(addresses)

    library = ctypes.CDLL("libcuda.so.1")
    launch = library.cuLaunchKernel
    launch.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    handle = int(function)

    def through_ctypes() -> object:
        return launch(handle, blocks, 1, 1, 256, 1, 1, 0, stream, address, None)

    def through_bindings() -> object:
        _ = values, addresses  # they live as long as the calls
        return bindings.cuLaunchKernel(function, blocks, 1, 1, 256, 1, 1, 0, typed, address, 0)

    config = ctypes.create_string_buffer(CONFIG.pack(blocks, 1, 1, 256, 1, 1, 0, stream, 0, 0), CONFIG.size)
    prepared = kinds().driver.launch(handle, ctypes.addressof(config), address)
    typed_config = bindings.CUlaunchConfig(_ptr=ctypes.addressof(config))

    def extended_through_bindings() -> object:
        return bindings.cuLaunchKernelEx(typed_config, function, address, 0)

    def ours() -> object:
        _ = config
        return prepared()

    return {
        "cuLaunchKernel, cuda.bindings": through_bindings,
        "cuLaunchKernel, ctypes": through_ctypes,
        "cuLaunchKernelEx, cuda.bindings": extended_through_bindings,
        OURS: ours,
    }


def measure(calls: dict[str, Call]) -> dict[str, float]:
    """Microseconds per call, medians over the rounds."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(CALLS):
            call()
    gc.collect()
    gc.disable()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter_ns() - start) / CALLS / 1e3)
    gc.enable()
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    """Measure, print and, if asked, store."""
    options = parser(__doc__).parse_args()
    machine()
    x, out = torch.rand(SHAPE, device="cuda"), torch.empty(SHAPE, device="cuda")
    figures = measure({"an empty Python call": lambda: None} | taskfuse_calls(x, out) | chains(x, out) | torch_calls(x, out) | bare_calls(x, out))
    empty = figures["an empty Python call"]
    lines = [f"microseconds per call, median of {ROUNDS} rounds of {CALLS} calls; float32 {list(SHAPE)}; the empty Python call is in every row"]
    lines += [f"  {name:52} {found:7.2f}" for name, found in figures.items()]
    lines += [f"aim: taskfuse with an allocated output 8 us or less: {figures['taskfuse, output allocated'] - empty:.2f} us without the empty call"]
    driver, allocated = (figures[name] - empty for name in (OURS, ALLOCATED))
    for kind, besides in ((CHAIN, 0.0), (GRAPH, allocated)):
        one, most = (figures[kind.format(n)] for n in LENGTHS)
        each = (most - one) / (LENGTHS[1] - LENGTHS[0])
        known = "the driver's launch" + (" and torch's allocation" if besides else "")
        lines += [f"{kind.format('n')}: {each:.2f} us for each further kernel, {each - driver - besides:.2f} besides {known} (aim: 1.5)"]
    publish("launch", lines, options)


if __name__ == "__main__":
    main()

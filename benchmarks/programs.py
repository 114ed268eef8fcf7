"""Programs as people write them, scheduled automatically, against torch: run op by op and compiled.

``python benchmarks/programs.py [--write] [--only NAME ...]``. The programs are those of ``tests/schedulers/programs.py``, at their large extents, with the
same math in torch here. Inputs are random; every call of a round has inputs and outputs of its own, which together exceed the L2 cache;
outputs are poisoned before, and checked after against torch in float64. Medians of 30 rounds, by CUDA events, all runners of a program in one process and in
turn: timed one after another, a product of 8192^3 took 1467 us in one run and 1641 in the next.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from reporting import L2_BYTES, gpu_median, gpu_medians, parser, publish

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.schedulers.segmentation import Segmentation

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.schedulers.programs import ALIKE, BIG, Program

F = torch.nn.functional
DTYPES = {tf.float32: torch.float32, tf.bfloat16: torch.bfloat16, tf.int64: torch.int64, tf.int8: torch.int8}
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 3e-2, torch.int8: 1, torch.int64: 0}
"""Of a result, relative to 1 or its absolute value, whichever is more. A quantized value may be rounded to the other side."""
MOST_SETS = 8


def rope(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary positions of halves."""
    half = x.shape[-1] // 2
    return (x * cos + torch.cat([-x[..., half:], x[..., :half]], 3) * sin).to(x.dtype)


def rope_of_pairs(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary positions of neighbors."""
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], 4).flatten(-2)


def causal_softmax(x: Any) -> Any:
    """Of scores that look back."""
    n = x.shape[-1]
    seen = torch.arange(n, device=x.device) <= torch.arange(n, device=x.device)[:, None]
    return torch.softmax(torch.where(seen, wide(x) * 0.125, -1e30), 2).to(x.dtype)


def quantized(x: Any) -> Any:
    """Rows in int8, and their scales."""
    scale = wide(x).abs().amax(1, keepdim=True) * (1 / 127.0)
    return (wide(x) / scale).round().to(torch.int8), scale[:, 0]


def residual_rms_norm(x: Any, residual: Any, scale: Any) -> Any:
    """The sum, and its norm."""
    total = x + residual
    x32 = wide(total)
    return total, (x32 * torch.rsqrt((x32 * x32).mean(1, keepdim=True) + 1e-5) * scale).to(x.dtype)


def batch_norm(x: Any, scale: Any, bias: Any) -> Any:
    """In training, without running statistics."""
    return F.batch_norm(x, None, None, scale.flatten(), bias.flatten(), training=True)


def group_norm(x: Any, scale: Any, bias: Any) -> Any:
    """32 groups, and silu."""
    return F.silu(F.group_norm(x, 32, scale.flatten(), bias.flatten()))


def norm_product(x: Any, scale: Any, b: Any) -> Any:
    """A product of rows that are normalized."""
    x32 = wide(x)
    return (x32 * torch.rsqrt((x32 * x32).mean(1, keepdim=True) + 1e-5) * scale).to(x.dtype) @ b


def depthwise_conv(x: Any, weights: Any) -> Any:
    """Causal, of four taps."""
    padded = F.pad(x, (0, 0, 3, 0))
    return F.silu(sum(padded[:, k : k + x.shape[1]] * weights[k] for k in range(4)))


def patches(x: Any) -> Any:
    """Of 16 x 16."""
    n, c, h, _ = x.shape
    return x.reshape(n, c, h // 16, 16, h // 16, 16).permute(0, 2, 4, 1, 3, 5).reshape(n, (h // 16) ** 2, c * 256)


def heads(x: Any) -> Any:
    """[batch, position, 32 heads of 128] as [batch, head, position, 128]."""
    return x.unflatten(2, (32, 128)).transpose(1, 2)


def head_scores(q: Any, k: Any) -> Any:
    """Of 32 heads."""
    return heads(q) @ heads(k).transpose(2, 3)


def packed_scores(qkv: Any) -> Any:
    """Of two thirds of one tensor."""
    q, k, _ = qkv.chunk(3, 2)
    return q @ k.transpose(1, 2)


def attention(q: Any, k: Any, v: Any) -> Any:
    """Written out: compilers may find the fused form."""
    return torch.softmax((q @ k.transpose(1, 2)) * 0.125, 2) @ v


def conv1d(x: Any, weights: Any) -> Any:
    """Three taps."""
    n = x.shape[1] - 2
    return x[:, :n] @ weights[0] + x[:, 1 : n + 1] @ weights[1] + x[:, 2:] @ weights[2]


def cross_entropy(x: Any, classes: Any) -> Any:
    """The negative logarithms of the classes' probabilities."""
    return -torch.log_softmax(x, 1).gather(1, classes[:, None])[:, 0]


def swiglu(x: Any) -> Any:
    """Of two halves."""
    a, b = x.chunk(2, 1)
    return F.silu(a) * b


def wide(x: Any) -> Any:
    """In float32 at least."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float32) else x


def embedding(w: Any, tokens: Any, residual: Any) -> Any:
    """Rows of a table, scaled, and a residual."""
    return w[tokens] * 2.0 + residual


def embedding_norm(w: Any, tokens: Any, scale: Any, bias: Any) -> Any:
    """Rows of a table, normalized."""
    return F.layer_norm(wide(w[tokens]), w.shape[1:], scale, bias).to(w.dtype)


def embedding_bag(w: Any, tokens: Any) -> Any:
    """Sums of rows of a table."""
    return F.embedding(tokens, w).sum(1)


def permuted_rows(x: Any, order: Any, scale: Any) -> Any:
    """Rows in another order, scaled."""
    return x[order] * scale[:, None]


def gathered_columns(x: Any, columns: Any) -> Any:
    """Elements of each row."""
    return x.gather(1, columns)


def one_hot(classes: Any) -> Any:
    """Rows with a one."""
    return F.one_hot(classes, 4096).float()


def mean_cross_entropy(x: Any, classes: Any) -> Any:
    """Of a batch."""
    return cross_entropy(x, classes).mean()


def softmax_middle(x: Any) -> Any:
    """Along the middle axis."""
    return torch.softmax(x, 1)


def log_softmax(x: Any) -> Any:
    """Along rows."""
    return torch.log_softmax(x, 1)


def layer_norm_of_two(x: Any, scale: Any, bias: Any) -> Any:
    """Over two axes."""
    return F.layer_norm(x, x.shape[1:], scale, bias)


def softmax_of_one(x: Any) -> Any:
    """Over two axes, one of which has one element."""
    return torch.softmax(x, 1)[:, :, None]


def mean_of_one(x: Any) -> Any:
    """Over an axis of one element."""
    return x.mean(1) * 2.0


def argmax(x: Any) -> Any:
    """Of rows."""
    return x.argmax(1)


def argmin_of_columns(x: Any) -> Any:
    """Of columns."""
    return x.argmin(0)


def weighted_experts(x: Any, weights: Any) -> Any:
    """A weighted sum over a short axis."""
    return (x * weights[..., None]).sum(2)


def distances(x: Any, y: Any) -> Any:
    """Squared, of all pairs."""
    return (x[:, None] - y[None]).square().sum(2)


def max_pool(x: Any) -> Any:
    """Of 2 x 2."""
    return F.max_pool2d(x, 2)


def key_cache(past: Any, new: Any) -> Any:
    """What is new behind what is there."""
    return torch.cat([past, new], 1)


def gram(x: Any) -> Any:
    """A tensor by its own transpose."""
    return x @ x.T


def gram_in_float32(x: Any) -> Any:
    """The same, in full precision."""
    return x @ x.T


def covariance(x: Any) -> Any:
    """The other way round."""
    return (x.T @ x) * (1.0 / x.shape[0])


def squared(x: Any) -> Any:
    """A tensor by itself."""
    return x @ x


def relu_product(a: Any, b: Any) -> Any:
    """A factor that is computed."""
    return torch.relu(a) @ b


def int8_product(a: Any, b: Any, scale: Any) -> Any:
    """A factor in int8 and its scales."""
    return a @ (b.to(a.dtype) * scale)


def gated_mlp(x: Any, up: Any, gate: Any) -> Any:
    """Two products of one input."""
    return F.silu(x @ up) * (x @ gate)


def flat_linear(x: Any, weights: Any) -> Any:
    """A linear layer of reshaped rows."""
    return (x.flatten(0, 1) @ weights).unflatten(0, x.shape[:2])


MATH: dict[str, Callable[..., Any]] = {
    math.__name__: math
    for math in (
        embedding,
        embedding_norm,
        embedding_bag,
        permuted_rows,
        gathered_columns,
        one_hot,
        cross_entropy,
        mean_cross_entropy,
        softmax_middle,
        log_softmax,
        causal_softmax,
        layer_norm_of_two,
        residual_rms_norm,
        batch_norm,
        group_norm,
        softmax_of_one,
        mean_of_one,
        argmax,
        argmin_of_columns,
        quantized,
        weighted_experts,
        distances,
        max_pool,
        rope,
        rope_of_pairs,
        swiglu,
        patches,
        key_cache,
        depthwise_conv,
        gram,
        gram_in_float32,
        covariance,
        squared,
        relu_product,
        int8_product,
        norm_product,
        gated_mlp,
        flat_linear,
        head_scores,
        packed_scores,
        attention,
        conv1d,
    )
}
"""The same in torch: of the inputs in the order in which the program defines them."""


def arguments(program: Program, fusion: tf.Fusion) -> list[Any]:
    """Random: of products, floats around 0; else in [0.1, 1)."""
    found: list[Any] = []
    for tv in fusion.inputs:
        shape, dtype = [int(str(e)) for e in tv.shape], DTYPES[tv.dtype]
        if tv.name in program.below:
            found.append(torch.randint(program.large[program.below[tv.name]], shape, device="cuda", dtype=dtype))
        elif dtype is torch.int8:
            found.append(torch.randint(-8, 8, shape, device="cuda", dtype=dtype))
        else:
            found.append((torch.rand(shape, device="cuda") * 0.9 + 0.1).to(dtype))
    return found


def results(made: Any) -> Sequence[Any]:
    """As a sequence."""
    return (made,) if isinstance(made, torch.Tensor) else made


def poisoned(like: Any) -> Any:
    """An array of the same form, of what no result is."""
    return torch.full_like(like, float("nan") if like.is_floating_point() else -77, memory_format=torch.contiguous_format)


def check(name: str, found: Sequence[Any], exact: Sequence[Any]) -> None:
    """Stops if a result is off. Exact ones are in float64, of the same inputs."""
    for got, wanted in zip(found, exact, strict=True):
        difference = (got.double() - wanted.double()).abs() / wanted.double().abs().clamp(min=1)
        error = float(difference.max())
        if not error <= TOLERANCE[got.dtype]:
            sys.exit(f"{name}: differs by {error:g}")


def row(program: Program, bandwidth: float) -> tuple[str, float]:
    """Measure one program: its line, and torch's time compiled over ours."""
    name, fusion = program.build.__name__, program.fusion(program.large)
    math, run = MATH[name], tf.compile(fusion, backend="cuda")
    first = arguments(program, fusion)
    wanted = results(math(*first))
    size = sum(t.numel() * t.element_size() for t in (*first, *wanted))
    count = min(max(2, 2 * L2_BYTES // size + 1), MOST_SETS)
    sets = [(args, [poisoned(t) for t in wanted]) for args in (first, *(arguments(program, fusion) for _ in range(count - 1)))]
    for args, out in sets:
        run(*args, out=tuple(out))
    for args, out in (sets[0], sets[-1]):
        check(name, out, results(math(*(a.double() if a.is_floating_point() else a for a in args))))
        torch.cuda.empty_cache()
    fast = torch.compile(math, dynamic=False)
    ours, eager, inductor = gpu_medians(
        [[partial(run, *args, out=tuple(out)) for args, out in sets], *([partial(f, *args) for args, _ in sets] for f in (math, fast))]
    )
    schedule: Any = run.schedule
    steps = schedule.steps if isinstance(schedule, Segmentation) else ()
    chosen = "+".join(step.schedule.scheduler for step in steps) or schedule.scheduler
    bound = 1e6 * size / bandwidth
    return (
        f"  {name:20} {len(run.kernels)} {size / 1e6:8.1f} {ours:9.1f} {schedule.us:9.1f} {bound:8.1f} {bound / ours:6.0%} "
        f"{eager:9.1f} {inductor:9.1f} {eager / ours:6.2f} {inductor / ours:6.2f}  {chosen}"
    ), inductor / ours


def copy_bandwidth() -> float:
    """Bytes per second that a copy reads and writes."""
    pairs = [(torch.rand(1 << 28, device="cuda"), torch.empty(1 << 28, device="cuda")) for _ in range(2)]
    return 2 * 4 * (1 << 28) / (gpu_median([lambda a=a, b=b: b.copy_(a) for a, b in pairs]) * 1e-6)


def main() -> None:
    """Measure, print and, if asked, store."""
    options_parser = parser(__doc__)
    options_parser.add_argument("--only", nargs="*", default=[""], help="programs whose names begin so")
    options = options_parser.parse_args()
    torch.manual_seed(0)
    bandwidth = copy_bandwidth()
    lines = [
        f"a copy moves {bandwidth / 1e12:.2f} TB/s (read and written); times in microseconds, medians of 30 rounds",
        "expected: by the cost models; bound: the time of inputs and outputs at that rate; share: bound / time; x: torch / ours, op by op and compiled",
        f"  {'program':20} {'n':1} {'MB':>8} {'time':>9} {'expected':>9} {'bound':>8} {'share':>6} {'torch':>9} {'compiled':>9} {'x':>6} {'x':>6}  schedulers",
    ]
    print("\n".join(lines), file=sys.stderr, flush=True)
    ratios: list[float] = []
    for program in (*ALIKE, *BIG):
        if program.build.__name__.startswith(tuple(options.only)):
            try:
                line, ratio = row(program, bandwidth)
                lines.append(line)
                ratios.append(ratio)
            except (TaskfuseError, torch.OutOfMemoryError) as error:
                lines.append(f"  {program.build.__name__:20} {str(error).splitlines()[0]}")
            print(lines[-1], file=sys.stderr, flush=True)
            torch.cuda.empty_cache()
    if ratios:
        lines.append(f"  {len(ratios)} programs beside torch.compile: geometric mean {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}")
    publish("programs", lines, options)


if __name__ == "__main__":
    main()

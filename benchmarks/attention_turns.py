"""What turns of the warpgroups would be worth to attention: kernels of ``tf.schedulers.attention`` as they are, and with turns written into their text.

``python benchmarks/attention_turns.py [--write] [--only NAME ...]``. All warpgroups of a block wait for the same keys, so they multiply at the same time, and
then compute exponentials at the same time, while the tensor cores wait (FlashAttention-3, arXiv:2407.08608, section 3.1, has them take turns). Here an mbarrier for
each of them is a turn that goes round: before a warpgroup issues the product of queries and keys it takes its turn, and it passes the turn

    issued    when that product is issued,
    done      when it is done,
    both      when the next product of queries and keys is issued; it takes the turn before the product with the values.

Nothing lowers to turns between warpgroups that read the same slots, and the proof knows no such mbarrier: "outside the model". So these kernels run unproved, and
their results are compared with those of the kernels without turns, word by word. A kernel that spills registers is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import torch
from attention import CASES, Case, theirs
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.schedulers import AttentionConfig

FORMS = ("issued", "done", "both")
CONFIGS = {
    "4096": ((2, 128, 2, 1, 132, 2), (2, 128, 2, 1, 132, 2, 2), (2, 160, 2, 1, 132, 2), (3, 112, 2)),
    "4096_causal": ((2, 128, 2, 1, 132, 1, 2), (2, 176, 2, 1, 132)),
    "16k": ((2, 128, 2, 1, 132, 2, 2),),
    "d64": ((3, 144, 2, 1, 132, 2, 2), (2, 192, 2, 1, 132, 2, 2)),
    "d256": ((2, 80, 2, 1, 132), (2, 80, 2, 2, 132), (2, 64, 2, 2, 132, 1, 2)),
    "512": ((2, 128, 2, 1, 132, 2, 2),),
}
"""Fields of the parameters."""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def with_turns(text: str, warpgroups: int, form: str) -> str:
    """The text of a kernel whose ``consumer`` takes turns. ``form``: one of :data:`FORMS`."""
    lines: list[str] = []
    in_consumer = False
    for line in text.splitlines():
        if line.lstrip().startswith("MBARRIER "):
            line += f", turn[{warpgroups}]"
        if line.strip().startswith("FENCE mbarrier_init"):
            lines += [" " * _indent(line) + f"INIT turn[{w}] count 4" for w in range(warpgroups)]
        lines.append(line)
        in_consumer = in_consumer or line.rstrip().endswith("# consumer")
        if in_consumer and line.lstrip().startswith("SETMAXNREG"):
            lines.append(" " * _indent(line) + "turn.c = CURSOR(slots 1, slot 0, parity 0)")
    take = ["WAIT turn[threadIdx.y - 1] parity xor(turn.c.parity, threadIdx.y - 1 == 0)"]
    give = ["SYNC warp", "IF threadIdx.x % 32 == 0:", f"  ARRIVE turn[threadIdx.y % {warpgroups}]", "turn.c.advance(1)"]
    start = next(k for k, line in enumerate(lines) if "WAIT ch1.full" in line)  # the loop over the keys begins with it
    around = _indent(lines[start - 1])
    end = next(k for k in range(start, len(lines)) if _indent(lines[k]) <= around)
    body = lines[start:end]

    def put(at: int, added: Sequence[str], indent: int = around + 2) -> None:
        body[at:at] = [" " * indent + line for line in added]

    def first(words: str, after: int = 0) -> int:
        return next(k for k in range(after, len(body)) if body[k].strip().startswith(words))

    issued = first("COMMIT wgmma") + 1
    before: list[str] = []
    behind: list[str] = []
    if form == "both":
        put(first("WAIT ch2.full") + 1, take)
        put(issued, give)
        before, behind = take, give
    else:
        put(issued if form == "issued" else first("WAIT_GROUP wgmma", issued) + 1, give)
        put(1, take)
    lines[start:end] = [*body, *(" " * around + line for line in behind)]
    lines[start - 1 : start - 1] = [" " * around + line for line in before]
    return "\n".join(lines)


def kernels(case: Case) -> dict[str, Kernel]:
    """By words: without turns, and with them. Walks without masks alone: others have two loop bodies."""
    found: dict[str, Kernel] = {}
    for fields in CONFIGS[case.name]:
        config, fusion = AttentionConfig(*fields), case.fusion()
        try:
            tf.schedulers.attention(fusion, config)
        except TaskfuseError as error:
            print(f"{case.name}: {config.words}: {str(error).splitlines()[0]}", flush=True)
            continue
        kernel = tf.lower(fusion)
        found[config.words] = kernel
        for form in FORMS:
            found[f"{config.words}; turns: {form}"] = parse_kernel(with_turns(str(kernel), config.warpgroups, form))
    return found


def measure(case: Case) -> list[str]:
    """The lines of a case."""
    args = case.arguments()
    others = theirs(case, args, has_flex=False)
    calls: list[Callable[[], object]] = list(others.values())
    words: list[str] = []
    wanted: torch.Tensor | None = None
    for name, kernel in kernels(case).items():
        try:
            spilled = kernel.resources(fast_math=True).compiled.spill_stores
            if spilled:
                print(f"{case.name}: {name}: {spilled} bytes spilled", flush=True)
                continue
            run = tf.compile(kernel, backend="cuda", fast_math=True, unsafe="turns" in name)
            out = torch.full_like(args[0], torch.nan)
            run(*args, out=out)
        except TaskfuseError as error:
            print(f"{case.name}: {name}: {str(error).splitlines()[0]}", flush=True)
            continue
        if "turns" not in name:
            wanted = out.clone()
        elif wanted is None or not torch.equal(out, wanted):
            sys.exit(f"{case.name}: {name}: results differ")
        calls.append(lambda run=run, out=out: run(*args, out=out))
        words.append(f"taskfuse: {name}")
    times = in_turn(calls)
    best = min(times[: len(others)])
    lines = [f"{case.name} {case.batch}x{case.heads}x{case.queries}x{case.keys}x{case.depth}{' causal' if case.is_causal else ''}"]
    return lines + [f"  {us:8.1f} us  {best / us:5.2f}x  {case.flop / us / 1e6:5.0f} TFLOP/s  {name}" for name, us in zip((*others, *words), times, strict=True)]


def main() -> None:
    """Measure, print and, if asked, store."""
    found = parser(__doc__)
    found.add_argument("--only", nargs="*", default=list(CONFIGS))
    options = found.parse_args()
    lines: list[str] = []
    for case in CASES:
        if case.name in options.only and case.name in CONFIGS:
            made = measure(case)
            print("\n".join(made), flush=True)
            lines += made
    publish("attention_turns", lines, options)


if __name__ == "__main__":
    main()

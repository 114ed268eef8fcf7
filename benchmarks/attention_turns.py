"""What an order of the products would be worth to attention: kernels of ``tf.schedulers.attention``, and the same with another order written into their text.

``python benchmarks/attention_turns.py [--write] [--only NAME ...]``. All warpgroups of a block wait for the same keys, so they may multiply at the same time,
and then compute exponentials at the same time, while the tensor cores wait. FlashAttention-3 (arXiv:2407.08608, sections 3.1 and 3.2) has warpgroups take
turns, and each of them compute exponentials while its next products run. Forms:

    turns, issued   an mbarrier for each warpgroup is a turn that goes round: it takes its turn before the product of queries and keys, and passes it on when
                    that product is issued
    turns, done     and when that product is done
    turns, both     it takes its turn before the product with the values, and passes it on when the next product of queries and keys is issued
    ahead           the product of queries and the next keys is issued before that with the values, and exponentials are computed while this one runs
    ahead, turns    the same; both are issued in one turn

Nothing lowers to turns between warpgroups that read the same slots, nor to the skewed loop, whose first product stands before it and whose last one behind.
Both are "outside the model" of the proof, so such kernels run unproved. Their results are compared with those of the kernels as they are, word by word.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import torch
from attention import CASES, Case, theirs
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.schedulers import AttentionConfig

FORMS = ("turns, issued", "turns, done", "turns, both", "ahead", "ahead, turns")
CONFIGS = {
    "4096": ((2, 128, 2, 1, 132, 2), (2, 128, 2, 1, 132, 2, 2), (2, 160, 2, 1, 132, 2), (3, 112, 2)),
    "16k": ((2, 128, 2, 1, 132, 2, 2),),
    "d64": ((3, 144, 2, 1, 132, 2, 2), (2, 192, 2, 1, 132, 2, 2)),
    "d256": ((2, 80, 2, 1, 132), (2, 80, 2, 2, 132), (2, 64, 2, 2, 132, 1, 2)),
    "512": ((2, 128, 2, 1, 132, 2, 2),),
}
"""Fields of the parameters, of cases without masks."""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def reordered(text: str, warpgroups: int, form: str) -> str:
    """The text of a kernel without masks, whose ``consumer`` multiplies in another order. ``form``: one of :data:`FORMS`."""
    lines: list[str] = []
    in_consumer, has_turns = False, "turns" in form
    for line in text.splitlines():
        if has_turns and line.lstrip().startswith("MBARRIER "):
            line += f", turn[{warpgroups}]"
        if has_turns and line.strip().startswith("FENCE mbarrier_init"):
            lines += [" " * _indent(line) + f"INIT turn[{w}] count 4" for w in range(warpgroups)]
        lines.append(line)
        in_consumer = in_consumer or line.rstrip().endswith("# consumer")
        if has_turns and in_consumer and line.lstrip().startswith("SETMAXNREG"):
            lines.append(" " * _indent(line) + "turn.c = CURSOR(slots 1, slot 0, parity 0)")
    start = next(k for k, line in enumerate(lines) if "WAIT ch1.full" in line)  # the loop over the keys begins with it
    around = _indent(lines[start - 1])
    end = next(k for k in range(start, len(lines)) if _indent(lines[k]) <= around)
    loop = lines[start - 1].strip()
    statements: list[list[str]] = []
    for line in lines[start:end]:
        if _indent(line) == around + 2 and not line.strip().startswith("ELSE"):
            statements.append([])
        statements[-1].append(line[around + 2 :])
    before, body, behind = _order(statements, warpgroups, form)
    if form.startswith("ahead"):
        variable = loop.split()[1]
        before = [re.sub(rf"\b{variable}\b", "0", line) for line in before]
        loop = loop.replace(" in 0..", " in 1..")
    made = [*before, loop, *("  " + line for line in body), *behind]
    lines[start - 1 : end] = [" " * around + line for line in made]
    return "\n".join(lines)


def _order(statements: list[list[str]], warpgroups: int, form: str) -> tuple[list[str], list[str], list[str]]:
    """What stands before the loop, in it, and behind it."""
    take = ["WAIT turn[threadIdx.y - 1] parity xor(turn.c.parity, threadIdx.y - 1 == 0)"]
    give = ["SYNC warp", "IF threadIdx.x % 32 == 0:", f"  ARRIVE turn[threadIdx.y % {warpgroups}]", "turn.c.advance(1)"]

    def first(words: str, after: int = 0) -> int:
        return next(k for k in range(after, len(statements)) if any(words in line for line in statements[k]))

    def text(begin: int, end: int) -> list[str]:
        return [line for statement in statements[begin:end] for line in statement]

    issued = first("COMMIT wgmma") + 1
    rounded, values = first("= cast."), first("WAIT ch2.full")
    done = first("COMMIT wgmma", values) + 1
    exponentials = next(k for k in range(issued + 1, rounded) if "WAIT_GROUP" not in text(k, k + 1)[-1] and not _releases(statements[k]))
    scores, released = text(0, issued), text(issued + 1, exponentials)
    if form.startswith("ahead"):
        begin, end = (take, give) if "turns" in form else ([], [])
        before = [*scores, "WAIT_GROUP wgmma <= 0", *released, *text(exponentials, values)]
        body = [*begin, *scores, *text(values, done), *end, "WAIT_GROUP wgmma <= 1", *released, *text(exponentials, rounded)]
        return before, [*body, *text(done, len(statements)), *text(rounded, values)], text(values, len(statements))
    if form == "turns, both":
        return take, [*scores, *give, *text(issued, values), *take, *text(values, len(statements))], give
    at = issued if form == "turns, issued" else issued + 1
    return [], [*take, *text(0, at), *give, *text(at, len(statements))], []


def _releases(statement: list[str]) -> bool:
    """True for what hands the slot of the keys back."""
    return statement[0].startswith(("SYNC warp", "ch1.c.advance")) or any("ARRIVE ch1.empty" in line for line in statement)


def kernels(case: Case) -> dict[str, Kernel]:
    """By words: as they are, and with another order."""
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
            found[f"{config.words}; {form}"] = parse_kernel(reordered(str(kernel), config.warpgroups, form))
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
            run = tf.compile(kernel, backend="cuda", fast_math=True, unsafe="turns" in name)
            out = torch.full_like(args[0], torch.nan)
            run(*args, out=out)
        except TaskfuseError as error:
            print(f"{case.name}: {name}: {str(error).splitlines()[0]}", flush=True)
            continue
        if ";" not in name:
            wanted = out.clone()
        elif wanted is None or not torch.equal(out, wanted):
            sys.exit(f"{case.name}: {name}: results differ")
        calls.append(lambda run=run, out=out: run(*args, out=out))
        words.append(f"taskfuse: {name}{f', {spilled} bytes spilled' if spilled else ''}")
    times = in_turn(calls)
    best = min(times[: len(others)])
    lines = [f"{case.name} {case.batch}x{case.heads}x{case.queries}x{case.keys}x{case.depth}"]
    for name, us in zip((*others, *words), times, strict=True):
        lines.append(f"  {us:8.1f} us  {best / us:5.2f}x  {case.flop / us / 1e6:5.0f} TFLOP/s  {name}")
    return lines


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

"""relu(a) @ b in bfloat16 with the loop of the warps that multiply written by hand: which order of loads, math and products is fastest.

``python benchmarks/factor_pipelines.py [--check] [--write]``. The kernel is that of ``tf.schedulers.matmul`` with ``in_flight=1``; only its loop over steps of k is
replaced. ``--check`` compiles without a GPU. Times as in ``computed_factor.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import taskfuse as tf
from taskfuse.cuda import code
from taskfuse.cuda.signature import Source
from taskfuse.errors import TaskfuseError
from taskfuse.schedulers import MatmulConfig

CASES = (
    ((128, 4096, 2816), (64, 64, 1, 8)),
    ((1536, 384, 2176), (64, 128, 1, 8)),
    ((1536, 384, 2176), (128, 64, 2, 8)),
    ((2560, 3968, 2944), (128, 128, 2, 6)),
    ((2688, 1792, 3968), (128, 192, 2, 4)),
    ((4096, 4096, 4096), (128, 256, 2, 4)),
)
PACKED = """
__device__ __forceinline__ void relu8(unsigned short* to, const unsigned short* from) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    unsigned r;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(word(from + 2 * i)), "r"(0));
    set_word(to + 2 * i, r);
  }
}
__device__ __forceinline__ void relu8_wide(unsigned short* to, const unsigned short* from) {
#pragma unroll
  for (int i = 0; i < 8; ++i) to[i] = to_packed_bfloat16(maximum_or_nan(from_bfloat16(from[i]), 0.0f));
}
"""


def lines_of(name: str, ld: Callable[[str, str, str], str], mm: Callable[[str, str, str], str], trips: int, stages: int) -> str:
    """The loop."""
    release = f"__syncwarp(); if (threadIdx_x % 32 == 0) mbarrier_arrive(&ch0_empty[ch0_c_r_slot]); if (++ch0_c_r_slot == {stages}) ch0_c_r_slot = 0;"
    advance = f"if (++ch0_c_slot == {stages}) ch0_c_slot = 0, ch0_c_parity ^= 1;"
    following = f"const int n_slot = ch0_c_slot + 1 == {stages} ? 0 : ch0_c_slot + 1, n_parity = ch0_c_slot + 1 == {stages} ? ch0_c_parity ^ 1 : ch0_c_parity;"
    wait, wait_n = "mbarrier_wait(&ch0_full[ch0_c_slot], ch0_c_parity);", "mbarrier_wait(&ch0_full[n_slot], n_parity);"
    slot, relu = "ch0_c_slot", "relu8_wide" if name.endswith("wide") else "relu8"
    loop, unroll = f"for (int i16 = 0; i16 < {trips}; ++i16) {{", "#pragma unroll\n"
    more = f"if (i16 + 1 < {trips})"

    def each(count: str, what: str) -> str:
        return f"{unroll}for (int q = 0; q < {count}; ++q) {{ {what} }}\n"

    def part(op: str, acc: str, first: str, size: int) -> str:
        """Compute from raw, multiply, close."""
        return (
            each(str(size), f"{relu}(&op[8 * ({op}) + 8 * q], &raw[8 * q]);")
            + each(str(size), f"wgmma_factor(&op[8 * ({op}) + 8 * q]);")
            + "wgmma_fence();\n"
            + each(str(size), mm(f"&op[8 * ({op}) + 8 * q]", f"(({first}) + q)", acc))
            + "wgmma_commit();\n"
        )

    match name.split()[0]:
        case "inside":  # as it is, with packed math
            body = f"{wait}\n{unroll}for (int p = 0; p < 2; ++p) {{\n" + each("2", ld("&raw[8 * q]", slot, "(2 * p + q)"))
            body += part("2 * p", "i16 + p + q >= 1", "2 * p", 2) + "wgmma_wait<1>();\n}\n"
            return f"unsigned short raw[16], op[32];\n{loop}\n{body} if (i16 >= 1) {{ {release} }} {advance} }}\n"
        case "within":  # the second part is loaded while the first is multiplied
            body = f"{wait}\n" + each("2", ld("&raw[8 * q]", slot, "q")) + f"{unroll}for (int p = 0; p < 2; ++p) {{\n"
            body += part("2 * p", "i16 + p + q >= 1", "2 * p", 2) + "if (p == 0) {\n" + each("2", ld("&raw[8 * q]", slot, "(2 + q)")) + "}\nwgmma_wait<1>();\n}\n"
            return f"unsigned short raw[16], op[32];\n{loop}\n{body} if (i16 >= 1) {{ {release} }} {advance} }}\n"
        case "across2":
            body = f"{following}\n{unroll}for (int p = 0; p < 2; ++p) {{\n" + part("2 * p", "i16 + p + q >= 1", "2 * p", 2)
            body += "if (p == 0) {\n" + each("2", ld("&raw[8 * q]", slot, "(2 + q)")) + f"}} else {more} {{ {wait_n}\n" + each("2", ld("&raw[8 * q]", "n_slot", "q"))
            body += "}\nwgmma_wait<1>();\n}\n"
            begin = f"unsigned short raw[16], op[32];\n{wait}\n" + each("2", ld("&raw[8 * q]", slot, "q"))
            return f"{begin}{loop}\n{body} if (i16 >= 1) {{ {release} }} {advance} }}\n"
        case "across4":
            body = f"{following}\n{unroll}for (int p = 0; p < 4; ++p) {{\n" + part("p", "i16 + p + q >= 1", "p", 1)
            body += "if (p < 3) {\n" + each("1", ld("&raw[8 * q]", slot, "(p + 1 + q)")) + f"}} else {more} {{ {wait_n}\n" + each("1", ld("&raw[8 * q]", "n_slot", "q"))
            body += "}\nwgmma_wait<3>();\n}\n"
            begin = f"unsigned short raw[8], op[32];\n{wait}\n" + each("1", ld("&raw[8 * q]", slot, "q"))
            return f"{begin}{loop}\n{body} if (i16 >= 1) {{ {release} }} {advance} }}\n"
        case "whole":  # one batch per step, its factor loaded while the step before is multiplied
            body = f"{following}\n" + part("0", "i16 + q >= 1", "0", 4) + f"{more} {{ {wait_n}\n" + each("4", ld("&raw[8 * q]", "n_slot", "q"))
            body += f"}}\nwgmma_wait<0>();\n{release} {advance} }}\n"
            return f"unsigned short raw[32], op[32];\n{wait}\n" + each("4", ld("&raw[8 * q]", slot, "q")) + f"{loop}\n{body}"
        case "double":  # and computed
            begin = f"unsigned short raw[32], op[64];\n{wait}\n" + each("4", ld("&raw[8 * q]", slot, "q")) + each("4", f"{relu}(&op[8 * q], &raw[8 * q]);")
            begin += each("4", "wgmma_factor(&op[8 * q]);")
            body = f"for (int j = 0; j < {trips}; j += 2) {{\n{unroll}for (int h = 0; h < 2; ++h) {{ const int i16 = j + h;\n{following}\nwgmma_fence();\n"
            body += each("4", mm("&op[32 * h + 8 * q]", "q", "i16 + q >= 1")) + f"wgmma_commit();\n{more} {{ {wait_n}\n"
            body += each("4", ld("&raw[8 * q]", "n_slot", "q")) + "}\nwgmma_wait<1>();\n" + each("4", f"{relu}(&op[32 * (1 - h) + 8 * q], &raw[8 * q]);")
            body += each("4", "wgmma_factor(&op[32 * (1 - h) + 8 * q]);") + f"if (i16 >= 1) {{ {release} }} {advance} }}\n}}\n"
            return begin + body
    raise AssertionError(name)


def patched(text: str, name: str) -> str:
    """The text with another loop."""
    ldmatrix = next(line.strip() for line in text.splitlines() if "ldmatrix_x4(&tv" in line)
    product = next(line.strip() for line in text.splitlines() if re.match(r"\s+wgmma_m64.*\(&tv", line))

    def ld(to: str, slot: str, q: str) -> str:
        address = ldmatrix[ldmatrix.index(", ") :].replace("4 * i18 + 2 * i30", f"2 * {q}").replace("ch0_c_slot", slot)
        return f"ldmatrix_x4({to}{address}"

    def mm(op: str, q: str, acc: str) -> str:
        call, rest = product.split("&tv2[8 * i19 + 16 * (i18 % 2)]")
        return call + op + rest.replace("4 * i18 + 2 * i19", f"2 * {q}").replace("i16 + i18 + i19 >= 1", acc)

    head, consumer = text.split("{  // consumer")
    found = re.search(r"\n( *)for \(int i16 = 0; i16 < (\d+); \+\+i16\) \{\n.*?\n\1\}\n", consumer, re.DOTALL)
    assert found
    stages = int(re.search(r"if \(\+\+ch0_c_slot == (\d+)\)", consumer)[1])  # type: ignore[index]
    made = consumer[: found.start()] + "\n" + lines_of(name, ld, mm, int(found[2]), stages) + consumer[found.end() :]
    head = head.replace("\n// grid (", PACKED + "\n// grid (", 1)
    return head + "{  // consumer" + made


NAMES = ("as it is", "inside", "inside wide", "within", "within wide", "across2", "across2 wide", "across4", "across4 wide", "whole", "whole wide", "double", "double wide")


LONG = {f"steps of 128, {stages} stages, {flight} in flight": (128, stages, flight) for stages in (6, 4) for flight in (0, 1, 3)}
"""Other parameters of today's kernel: elements of k in a step, stages, batches in flight."""


def across(text: str, name: str) -> str:
    """float64 by warps: fragments of the next tile of k are loaded before the last products of this one. "early": copies start behind that, too."""
    loop = re.search(r"\n  for \(int i12 = 0; i12 < (\d+); \+\+i12\) \{\n    copy_wait<1>\(\);\n.*?__syncthreads\(\);\n(.*?    copy_commit\(\);\n)(.*?)\n  \}\n  copy_wait<0>", text, re.DOTALL)
    assert loop
    trips, copies, rest = int(loop[1]), loop[2], loop[3]
    steps = int(re.search(r"i15 < (\d+)", rest)[1])  # type: ignore[index]
    body = rest[rest.index("{\n") + 2 : rest.rindex("    }\n    if (++")]
    at = body.index("#pragma unroll\n      for (int i16 ")
    fill, multiply = body[:at], body[at:]
    slot = re.search(r"\+\+(\w+_ring_slot) == (\d+)", rest)
    assert slot

    def of(part: str, side: int) -> str:
        return part.replace("tv6[", f"f6_{side}[").replace("tv7[", f"f7_{side}[")

    fills = [of(fill, side) for side in (0, 1)]
    six, seven = (re.search(rf"double {tv}\[(\d+)\]", text)[1] for tv in ("tv6", "tv7"))  # type: ignore[index]
    made = "".join(f"double f6_{side}[{six}], f7_{side}[{seven}];\n" for side in (0, 1))
    made += "copy_wait<1>();\n__syncthreads();\n{ const int i15 = 0;\n" + fills[0] + "}\n"
    made += f"for (int i12 = 0; i12 < {trips}; ++i12) {{\n" + (copies if name == "across" else "")
    for step in range(steps):
        side = step % 2
        if step + 1 < steps:
            made += f"{{ const int i15 = {step + 1};\n{fills[1 - side]}}}\n"
        else:
            made += f"copy_wait<1>();\n__syncthreads();\n"
            made += f"if (++{slot[1]} == {slot[2]}) {slot[1]} = 0;\n{{ const int i15 = 0;\n{fills[1 - side]}}}\n"
            made += copies.replace("i12", "(i12 + 1)") if name != "across" else ""
        made += of(multiply, side)
    begin = copies.replace("i12", "0") if name != "across" else ""
    made = made.replace("for (int i12 = 0;", begin + "for (int i12 = 0;", 1)
    return text[: loop.start()] + "\n" + made + "\n  }\n  copy_wait<0>" + text[loop.end() :]


DOUBLES = (
    ("as it is", (128, 64, 64, 32, 16, 8, 3, 1)),
    ("across", (128, 64, 64, 32, 16, 8, 3, 1)),
    ("early", (128, 64, 64, 32, 16, 8, 3, 1)),
    ("as it is", (128, 64, 64, 32, 16, 16, 3, 1)),
    ("as it is", (128, 64, 64, 32, 32, 8, 2, 1)),
    ("as it is", (128, 128, 64, 32, 16, 8, 3, 1)),
    ("across", (128, 128, 64, 32, 16, 8, 3, 1)),
    ("early", (128, 128, 64, 32, 16, 8, 3, 1)),
    ("early", (128, 128, 64, 32, 32, 8, 3, 1)),
    ("as it is", (64, 64, 32, 32, 16, 8, 3, 1)),
    ("across", (64, 64, 32, 32, 16, 8, 3, 1)),
)


def double_of(config: tuple[int, ...], n: int = 4096) -> tf.Fusion:
    """A product of float64 by warps, scheduled."""
    with tf.Fusion("double") as made:
        a, b = (tf.define_tensor([n, n], tf.float64, name=name) for name in "ab")
        made.add_output(a @ b)
    tf.schedulers.mma_gemm(made, tf.schedulers.MmaGemmConfig(*config))
    return made


def fusion_of(m: int, n: int, k: int, tile: tuple[int, int, int, int], steps: tuple[int, int, int] | None = None) -> tf.Fusion:
    """Scheduled."""
    with tf.Fusion("computed") as made:
        a, b = tf.define_tensor([m, k], tf.bfloat16, name="a"), tf.define_tensor([k, n], tf.bfloat16, name="b")
        made.add_output(tf.relu(a) @ b)
    blocks = min(132, -(-m // tile[0]) * -(-n // tile[1]))
    group = 16 if m > 2000 else 1
    tile_k, stages, flight = steps or (64, tile[3], 1)
    config = MatmulConfig(tile[0], tile[1], tile_k, warpgroups=tile[2], stages=stages)
    tf.schedulers.matmul(made, replace(config, in_flight=flight, blocks=blocks, group=group))
    return made


def main() -> None:
    """Measure."""
    from reporting import in_turn, parser, publish

    options = parser(__doc__)
    options.add_argument("--check", action="store_true", help="only compile")
    given = options.parse_args()
    usual = code.emitted
    current = ["as it is"]

    def emitted(*args: Any) -> Source:
        source = usual(*args)
        if current[0] == "as it is":
            return source
        return replace(source, text=(across if source.name == "double" else patched)(source.text, current[0]))

    code.emitted = emitted
    if given.check:
        from taskfuse.cuda.cache import compiled
        from taskfuse.cuda.nvrtc import CompileOptions
        from taskfuse.options import read_options

        for name, config in DOUBLES:
            text = tf.lower(double_of(config)).cuda_source()
            made = text if name == "as it is" else across(text, name)
            found = compiled(made, "double", CompileOptions(arch="sm_90a"), read_options(), strict=False).resources
            print(config, name, found)
        for size, tile in CASES:
            text = tf.lower(fusion_of(*size, tile)).cuda_source()
            for name in NAMES:
                made = text if name == "as it is" else patched(text, name)
                try:
                    binary = compiled(made, "computed", CompileOptions(arch="sm_90a"), read_options(), strict=True)
                    print(tile, name, binary.resources and binary.resources.registers)
                except TaskfuseError as error:
                    print(tile, name, str(error).splitlines()[0])
        return
    import torch

    lines: list[str] = []
    for (m, n, k), tile in CASES:
        a, b = torch.randn(m, k, device="cuda").bfloat16(), torch.randn(k, n, device="cuda").bfloat16()
        out = torch.empty((m, n), device="cuda", dtype=torch.bfloat16)
        wanted = (torch.relu(a) @ b).float()
        with tf.Fusion("plain") as plain:
            x, y = tf.define_tensor([m, k], tf.bfloat16, name="a"), tf.define_tensor([k, n], tf.bfloat16, name="b")
            plain.add_output(x @ y)
        current[0] = "as it is"
        ours = tf.compile(plain)
        calls: list[Callable[[], object]] = [partial(torch.mm, a, b, out=out), lambda a=a, b=b: torch.relu(a) @ b, partial(ours, a, b, out=(out,))]
        names = ["torch, plain", "torch, relu and product", "ours, plain"]
        wide = tile in ((64, 64, 1, 8), (128, 128, 2, 6))
        for name in (*(n for n in NAMES if wide or not n.endswith("wide")), *(() if tile[0] * tile[1] > 8192 else LONG)):
            current[0] = name if name in NAMES else "as it is"
            try:
                run = tf.compile(fusion_of(m, n, k, tile, LONG.get(name)), cache=False)
                out.fill_(float("nan"))
                run(a, b, out=(out,))
            except TaskfuseError as error:
                lines.append(f"{name}: {str(error).splitlines()[0]}")
                continue
            right = bool(((out.float() - wanted).abs() <= wanted.abs() * 2**-7 + 1e-3 * wanted.abs().max()).all())
            calls.append(partial(run, a, b, out=(out,)))
            names.append(f"{name}{'' if right else ': WRONG'}")
        times = in_turn(calls)
        lines += [f"{m} x {n} x {k}, tiles {tile}", *(f"  {us:9.2f} us  {name}" for us, name in zip(times, names, strict=True))]
        print("\n".join(lines[-len(times) - 1 :]), flush=True)
    n = 4096
    x, y = (torch.randn(n, n, device="cuda", dtype=torch.float64) for _ in range(2))
    out = torch.empty_like(x)
    exact = x @ y
    calls, names = [partial(torch.mm, x, y, out=out)], ["torch"]
    for name, config in DOUBLES:
        current[0] = name
        run = tf.compile(double_of(config), cache=False)
        out.fill_(float("nan"))
        run(x, y, out=(out,))
        right = bool(((out - exact).abs() <= 1e-9).all())
        calls.append(partial(run, x, y, out=(out,)))
        names.append(f"{name} {config}{'' if right else ': WRONG'}")
    times = in_turn(calls)
    lines += ["4096 x 4096 x 4096 float64", *(f"  {us:9.2f} us  {name}" for us, name in zip(times, names, strict=True))]
    publish("factor_pipelines", lines, given)


if __name__ == "__main__":
    main()

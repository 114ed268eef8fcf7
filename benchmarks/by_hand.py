"""Orders of loads and products of float64, and ways to convert weights of 4 bits, by hand: what may become a schedule.

``python benchmarks/by_hand.py [--write] [--check]``: microseconds in turn, results checked after outputs were poisoned.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import product_figures

import taskfuse as tf
from taskfuse.cuda import code
from taskfuse.cuda.source import Source
from taskfuse.errors import TaskfuseError

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



DOUBLES = tuple(
    (name, (*tile, 16, 8, 3, ahead))
    for tile in ((128, 64, 64, 32), (128, 128, 64, 32), (64, 64, 32, 32), (128, 64, 32, 32))
    for name, ahead in (("as it is", 1), ("as it is", 2), ("across", 1), ("early", 1))
) + tuple(("as it is", config) for config in ((128, 64, 64, 32, 16, 4, 3, 1), (128, 64, 64, 32, 16, 4, 3, 2), (128, 64, 64, 32, 16, 16, 3, 1), (128, 64, 64, 32, 32, 8, 2, 2)))


def double_of(config: tuple[int, ...], n: int = 4096) -> tf.Fusion:
    """A product of float64 by warps, scheduled."""
    with tf.Fusion("double") as made:
        a, b = (tf.define_tensor([n, n], tf.float64, name=name) for name in "ab")
        made.add_output(a @ b)
    tf.schedulers.mma_gemm(made, tf.schedulers.MmaGemmConfig(*config))
    return made



BODY = re.compile(r"          tv6 = \(unsigned.*?(?=#pragma unroll\n          for \(int i10 = 0)", re.DOTALL)
e="tv3[(i3_r * 2 + i7) * 16 + i8]"
magic=f'''          tv9 = __uint_as_float(({e} & 15u) | 0x4b000000u) - 8388616.0f;
          tv11 = __uint_as_float(({e} >> 4) | 0x4b000000u) - 8388616.0f;
'''
e4="tv3[(i3_r * 2 + i7) * 16 + 4 * (i8 / 4)]"
words=f'''          if (i8 % 4 == 0) {{
            const unsigned w4 = word(&{e4});
#pragma unroll
            for (int j = 0; j < 4; ++j) {{
              unsigned q = w4 >> 4 * j & 0x000f000fu | 0x43004300u, z;
              asm("sub.bf16x2 %0, %1, %2;" : "=r"(z) : "r"(q), "r"(0x43084308u));
              dq[j] = __uint_as_float(z << 16), dq[j + 4] = __uint_as_float(z & 0xffff0000u);
            }}
          }}
          tv9 = dq[2 * (i8 % 4)], tv11 = dq[2 * (i8 % 4) + 1];
'''
half=words.replace("0x43004300u","0x64006400u").replace("sub.bf16x2","sub.f16x2").replace("0x43084308u","0x64086408u").replace("dq[j] = __uint_as_float(z << 16), dq[j + 4] = __uint_as_float(z & 0xffff0000u)","dq[j] = h2f(z & 0xffff), dq[j + 4] = h2f(z >> 16)")
W='''template <typename T>
__device__ __forceinline__ unsigned word(const T* x) { return (unsigned char)x[0] | (unsigned char)x[1] << 8 | (unsigned char)x[2] << 16 | (unsigned)(unsigned char)x[3] << 24; }
__device__ __forceinline__ float h2f(unsigned short b){float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(b)); return x;}
'''

BITS = {"as it is": "", "magic": magic, "words": words, "half": half}


def bits_of(text: str, name: str) -> str:
    """The text with another conversion."""
    assert BODY.search(text)
    made = BODY.sub(lambda _: BITS[name], text, count=1).replace("  unsigned char tv6;\n", "  unsigned char tv6; float dq[8];\n")
    return made.replace("// grid", W + "\n// grid", 1)


def main() -> None:
    from reporting import in_turn, parser, publish

    options = parser(__doc__)
    options.add_argument("--check", action="store_true", help="only compile")
    given = options.parse_args()
    usual, current = code.emitted, ["as it is"]

    def emitted(*args: Any) -> Source:
        source = usual(*args)
        if current[0] == "as it is":
            return source
        return replace(source, text=(across if source.name == "double" else bits_of)(source.text, current[0]))

    code.emitted = emitted
    if given.check:
        from taskfuse.cuda.cache import compiled
        from taskfuse.cuda.nvrtc import CompileOptions
        from taskfuse.options import read_options

        for name, config in DOUBLES:
            try:
                text = tf.lower(double_of(config)).cuda_source()
                made = text if name == "as it is" else across(text, name)
                print(config, name, compiled(made, "double", CompileOptions(arch="sm_90a"), read_options(), strict=False).resources, flush=True)
            except (TaskfuseError, AssertionError) as error:
                print(config, name, str(error).splitlines()[:2])
        fusion = product_figures.bits(4096, 4096)
        tf.schedulers.auto(fusion)
        text = tf.lower(fusion).cuda_source()
        for name in BITS:
            made = text if name == "as it is" else bits_of(text, name)
            print(name, compiled(made, "bits", CompileOptions(arch="sm_90a"), read_options(), strict=False).resources)
        return
    import torch

    lines: list[str] = []
    for n, k in ((4096, 4096), (14336, 14336)):
        x = torch.randn(k, device="cuda").bfloat16()
        sets = [
            (torch.randint(256, (n, k // 2), device="cuda", dtype=torch.uint8), torch.rand(n, k // 128, device="cuda").bfloat16())
            for _ in range(2 * product_figures.L2_BYTES // (n * k // 2) + 2)
        ]
        w, scales = sets[0]
        wide = torch.stack([(w & 15).float() - 8, (w >> 4).float() - 8], -1).reshape(n, k // 128, 128)
        wanted = ((wide * x.float().reshape(k // 128, 128)).sum(2) * scales.float()).sum(1)
        out = torch.empty(n, device="cuda", dtype=torch.bfloat16)
        calls: list[Callable[[], object]] = []
        names: list[str] = []
        for name in BITS:
            current[0] = name
            run: Any = tf.compile(product_figures.bits(n, k), backend="cuda", cache=False)
            out.fill_(float("nan"))
            run(x, w, scales, out=(out,))
            error = (out.float() - wanted).abs().max().item() / wanted.abs().max().item()

            def turn(run: Any = run) -> None:
                for w, scales in sets:
                    run(x, w, scales, out=(out,))

            calls.append(turn)
            names.append(f"{name}{'' if error < 2**-7 else f': WRONG {error}'}")
        lines.append(f"bits {n} x {k}")
        lines += [f"  {us / len(sets):9.2f} us  {name}" for us, name in zip(in_turn(calls), names, strict=True)]
        print("\n".join(lines), flush=True)
    n = 4096
    x, y = (torch.randn(n, n, device="cuda", dtype=torch.float64) for _ in range(2))
    out = torch.empty_like(x)
    exact = x @ y
    calls, names = [partial(torch.mm, x, y, out=out)], ["torch"]
    for name, config in DOUBLES:
        current[0] = name
        try:
            run = tf.compile(double_of(config), cache=False)
            out.fill_(float("nan"))
            run(x, y, out=(out,))
        except (TaskfuseError, AssertionError) as error:
            lines.append(f"{name} {config}: {str(error).splitlines()[:1]}")
            continue
        right = bool(((out - exact).abs() <= 1e-9).all())
        calls.append(partial(run, x, y, out=(out,)))
        names.append(f"{name} {config}{'' if right else ': WRONG'}")
    times = in_turn(calls)
    lines += ["4096 x 4096 x 4096 float64", *(f"  {us:9.2f} us  {name}" for us, name in zip(times, names, strict=True))]
    publish("by_hand", lines, given)


if __name__ == "__main__":
    main()

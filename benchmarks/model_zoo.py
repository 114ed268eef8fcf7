"""Many architectures of ``transformers`` and ``timm``, small and with random weights, through ``torch.compile(backend="taskfuse")``: which are right.

    python benchmarks/model_zoo.py [NAME ...] [--jobs 14] [--limit 150] [--seconds 500] [--write]

Each model runs in a process of its own: inference in bfloat16, a training step in float32, with sizes that are no powers of two where the architecture
lets one choose. *right* is torch's own rule (``torch._dynamo.utils.same``) against eager and float64. Nothing is timed but the first call. A model that its
package does not build, or that eager does not run, is listed as such. Nobody chose the architectures for this project: they are what the two packages have.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from reporting import parser, publish
from torch_models import step


def architectures() -> dict[str, list[str]]:
    """Names by what the models read; those of ``timm`` apart."""
    found: dict[str, list[str]] = {}
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines():
        kind, _, names = line.rpartition(":")
        found.setdefault(kind or next(reversed(found)), []).extend(names.split())
    return found


NAMES = architectures()
SMALL = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "embedding_size", "word_embed_proj_dim", "emb_dim"), 96),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"), 6),
    **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "ffn_hidden_size"), 200),
    **{"num_key_value_heads": 2, "head_dim": 16, "d_kv": 16, "vocab_size": 1003, "max_position_embeddings": 128, "n_positions": 128, "pad_token_id": 0},
    **{"use_cache": False, "num_experts": 4, "num_local_experts": 4, "image_size": 64, "patch_size": 16},
}
"""Parameters of configurations, under all names that these have."""

OWN: dict[str, dict[str, Any]] = {"canine": {"vocab_size": 1003}, "reformer": {"axial_pos_shape": (4, 32), "axial_pos_embds_dim": (32, 64)}}
"""Further parameters of single architectures."""

DEPTHS = ("num_hidden_layers", "encoder_layers", "decoder_layers", "vocab_size")

LENGTH = 45


def text_model(kind: str) -> tuple[Any, dict[str, Any]]:
    """A model of ``transformers`` and its inputs."""
    import transformers

    own = OWN.get(kind, {})
    if kind in NAMES["images"]:  # their sizes are lists of stages
        config = transformers.AutoConfig.for_model(kind, **own)
        for name in ("num_hidden_layers", "num_layers"):
            if isinstance(getattr(config, name, None), int):
                setattr(config, name, 2)
    elif kind in NAMES["sound"]:
        config = transformers.AutoConfig.for_model(
            kind, **{k: SMALL[k] for k in ("num_hidden_layers", "encoder_layers", "decoder_layers", "vocab_size")}, **own
        )
    else:
        config = transformers.AutoConfig.for_model(kind, **{**SMALL, **own})
    model = transformers.AutoModel.from_config(config)
    name = model.main_input_name
    tokens = torch.randint(1, 1000, (2, LENGTH))
    inputs: dict[str, Any]
    if name == "pixel_values":
        size = getattr(config, "image_size", 64)
        size = size if isinstance(size, int) else size[0]
        shape = (1, getattr(config, "num_channels", 3), size, size)
        frames = getattr(config, "num_frames", None)
        inputs = {name: torch.randn(1, frames, *shape[1:]) if frames else torch.randn(shape)}
    elif name == "input_features":
        inputs = {name: torch.randn(1, config.num_mel_bins, 2 * getattr(config, "max_source_positions", 100))}
    elif name == "input_values":
        length = getattr(config, "max_length", 3000)
        inputs = {name: torch.randn(1, length, config.num_mel_bins) if hasattr(config, "num_mel_bins") else torch.randn(1, 8000)}
    else:
        inputs = {name: tokens}
    if getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = tokens[:1, :17].expand(inputs[name].shape[0], -1).contiguous()
    return model, inputs


class First(torch.nn.Module):
    """The first tensor of a model's result, of inputs that have names."""

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.names = model, tuple(names)

    def forward(self, *args: Any) -> Any:
        found = self.model(**dict(zip(self.names, args, strict=True))) if self.names else self.model(*args)
        return found if isinstance(found, torch.Tensor) else found[0]


def built(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A model and its arguments, on the host, in float32."""
    torch.manual_seed(0)
    if name.startswith("timm/"):
        import timm

        model = timm.create_model(name.removeprefix("timm/"), num_classes=10)
        _, height, width = model.default_cfg["input_size"]
        return First(model.eval(), ()), (torch.randn(2, 3, height, width),)
    model, inputs = text_model(name)
    return First(model.eval(), tuple(inputs)), tuple(inputs.values())


def one(name: str) -> None:
    """Run a model, and print a line of JSON for each way."""
    from torch._dynamo.utils import same

    from taskfuse.torch.compilation import GraphReport, listeners
    from taskfuse.torch.reports import Report

    def tell(way: str, word: str, detail: str = "", **more: Any) -> None:
        print(json.dumps({"name": name, "way": way, "word": word, "detail": detail[:300], **more}), flush=True)

    try:
        model, args = built(name)
    except Exception as error:
        tell("", "not built", f"{type(error).__name__}: {error}".replace("\n", " "))
        return
    for way, dtype, train in (("inference bfloat16", torch.bfloat16, False), ("training float32", torch.float32, True)):
        torch._dynamo.reset()
        mine = copy.deepcopy(model).to(device="cuda", dtype=dtype)
        inputs = tuple(x.to(device="cuda", dtype=dtype if x.is_floating_point() else None) for x in args)
        try:
            want = [t.clone() for t in step(mine, inputs, train)]
            exact = step(copy.deepcopy(model).to(device="cuda").double(), tuple(x.double() if x.is_floating_point() else x for x in inputs), train)
        except Exception as error:
            tell(way, "eager does not run it", f"{type(error).__name__}: {error}".replace("\n", " "))
            continue
        reports: list[GraphReport] = []
        listeners[:] = [reports.append]
        start = time.perf_counter()
        try:
            got = [t.clone() for t in step(torch.compile(mine, backend="taskfuse", options={"strict": True}), inputs, train)]
            torch.cuda.synchronize()
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            told = next((line for line in lines if "Error" in line), lines[0])
            tell(way, "FAILED", f"{type(error).__name__}: {told}", seconds=time.perf_counter() - start)
            continue
        seconds = time.perf_counter() - start
        off = [k for k, (a, b, c) in enumerate(zip(got, want, exact, strict=True)) if not same(b, a, c, tol=1e-2 if train else 1e-3)]
        detail = f"{len(off)} of {len(got)} results, the first {off[0]}: off by {(got[off[0]].double() - exact[off[0]].double()).abs().max():.2g}, eager by "
        detail = detail + f"{(want[off[0]].double() - exact[off[0]].double()).abs().max():.2g}" if off else ""
        r = Report(tuple(reports))
        tell(way, "WRONG" if off else "right", detail, seconds=seconds, coverage=r.coverage, could=r.could, kernels=r.kernels, graphs=len(reports))


def ran(name: str, limit: float, end: float) -> list[dict[str, Any]]:
    """What became of a model."""
    left = min(limit, end - time.monotonic())
    if left < 20:
        return [{"name": name, "way": "", "word": "not reached"}]
    try:
        done = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True, timeout=left, check=False)
        out, error = done.stdout, "" if done.returncode == 0 else f"process ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"
    except subprocess.TimeoutExpired as stopped:
        out, error = (stopped.stdout or b"").decode() if isinstance(stopped.stdout, bytes) else (stopped.stdout or ""), f"stopped after {left:.0f} s"
    found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    if error:
        found.append({"name": name, "way": "", "word": "stopped" if error.startswith("stopped") else "FAILED", "detail": error})
    for f in found:
        numbers = (
            f"{f['seconds']:5.1f} s {f['graphs']:2} graphs {f['kernels']:4} kernels coverage {f['coverage']:4.0%} of {f['could']:4.0%}"
            if "kernels" in f
            else ""
        )
        print(f"{f['name']:34} {f['way']:18} {f['word']:9} {numbers} {f.get('detail', '')}", flush=True)
    return found


def main() -> None:
    """Run what the command line says."""
    options_parser = parser(__doc__)
    options_parser.add_argument("names", nargs="*")
    options_parser.add_argument("--jobs", type=int, default=14)
    options_parser.add_argument("--limit", type=float, default=150, help="seconds for a model")
    options_parser.add_argument("--seconds", type=float, default=500, help="for all")
    options_parser.add_argument("--one", metavar="NAME", help="run one, in this process")
    options = options_parser.parse_args()
    if options.one:
        one(options.one)
        return
    end = time.monotonic() + options.seconds
    every = options.names or [f"timm/{name}" if kind == "timm" else name for kind, names in NAMES.items() for name in names]
    with ThreadPoolExecutor(options.jobs) as pool:
        found = [f for of_one in pool.map(lambda name: ran(name, options.limit, end), every) for f in of_one]
    counts = Counter((f["way"], f["word"]) for f in found)
    table = [f"{way or 'both':18} {word:22} {n:4}" for (way, word), n in sorted(counts.items())]
    seconds = sorted(f["seconds"] for f in found if "kernels" in f)
    if seconds:
        table.append(f"first calls: median {seconds[len(seconds) // 2]:.1f} s, most {seconds[-1]:.1f} s, {options.jobs} processes at once")
    table += [f"  {f['name']} {f['way']}: {f['word']} {f.get('detail', '')}" for f in found if f["word"] not in ("right", "not built")]
    publish("model_zoo", table, options)


if __name__ == "__main__":
    main()

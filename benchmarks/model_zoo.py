"""Many architectures of ``transformers`` and ``timm``, small and with random weights, through ``torch.compile(backend="taskfuse")``: which are right.

    python benchmarks/model_zoo.py [NAME ...] [--ways inference training] [--jobs 14] [--limit 150] [--seconds 500] [--host] [--write]

Each model runs twice: inference in bfloat16, a training step in float32, with sizes that are no powers of two where the architecture lets one choose.
*right* is torch's own rule (``torch._dynamo.utils.same``) against eager and float64. Nothing is timed but the first call. A model that its package does not
build, or that eager does not run, is listed as such. Nobody chose the architectures for this project: they are what the two packages have.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import torch
from models import step
from reporting import parser, publish
from torch import nn


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

OWN: dict[str, dict[str, Any]] = {
    "gptj": {"rotary_dim": 8},
    "codegen": {"rotary_dim": 8, "n_head": 8, "num_attention_heads": 8},
    "falcon": {"head_dim": None},
    "mobilebert": {"hidden_size": 128, "embedding_size": 32, "true_hidden_size": 128, "num_attention_heads": 4},
    "olmoe": {"num_experts": 16},
    "qwen3_moe": {"num_experts": 16},
}
"""Parameters of single architectures beside these; ``None``: left out."""

DEPTHS = ("num_hidden_layers", "encoder_layers", "decoder_layers")

LENGTH = 45
WAYS = {"inference": (torch.bfloat16, False), "training": (torch.float32, True)}
"""Dtype, and whether gradients are taken."""


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
        given = {**SMALL, **own}
        config = transformers.AutoConfig.for_model(kind, **{k: v for k, v in given.items() if v is not None})
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


class First(nn.Module):
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


class Runner:
    """Runs models, one after another, and prints a line of JSON for each way."""

    def __init__(self, host: bool, ways: Sequence[str]) -> None:
        self.device, self.ways = ("cpu" if host else "cuda"), ways
        self.options = {"strict": True, **({"run": "reference"} if host else {})}

    def run(self, name: str) -> None:
        """Run a model."""
        try:
            model, args = built(name)
        except Exception as error:
            self.tell(name, "", "not built", told(error))
            return
        for way in self.ways:
            self.check(name, way, model, args)

    def tell(self, name: str, way: str, word: str, detail: str = "", **more: Any) -> None:
        """Print a line."""
        print(json.dumps({"name": name, "way": way, "word": word, "detail": detail[:300], **more}), flush=True)

    def moved(self, model: Any, args: tuple[Any, ...], dtype: torch.dtype) -> tuple[Any, tuple[Any, ...]]:
        """A copy of a model, and its arguments, on the device."""
        mine = copy.deepcopy(model).to(device=self.device, dtype=dtype)
        return mine, tuple(x.to(device=self.device, dtype=dtype if x.is_floating_point() else None) for x in args)

    def exact(self, model: Any, args: tuple[Any, ...], train: bool) -> list[Any]:
        """The results in float64; of ops that lack it, in float32."""
        try:
            return step(*self.moved(model, args, torch.float64), train)
        except (RuntimeError, TypeError):
            return [t.double() for t in step(*self.moved(model, args, torch.float32), train)]

    def check(self, name: str, way: str, model: Any, args: tuple[Any, ...]) -> None:
        """Run a model in a way, and compare it."""
        from torch._dynamo.utils import same

        from taskfuse.torch.compilation import GraphReport, listeners
        from taskfuse.torch.dynamo import backend
        from taskfuse.torch.reports import Report

        def ours(graph: Any, example: Any) -> Any:
            return backend(graph, example, options=self.options)

        dtype, train = WAYS[way]
        torch._dynamo.reset()
        try:
            mine, inputs = self.moved(model, args, dtype)
            want = [t.clone() for t in step(mine, inputs, train)]
            exact = self.exact(model, args, train)
        except Exception as error:
            self.tell(name, way, "eager fails", told(error))
            return
        reports: list[GraphReport] = []
        listeners[:] = [reports.append]
        start = time.perf_counter()
        try:
            got = [t.clone() for t in step(torch.compile(mine, backend=ours), inputs, train)]
            seconds = time.perf_counter() - start
            wrong = [k for k, three in enumerate(zip(want, got, exact, strict=True)) if not same(*three, tol=1e-2 if train else 1e-3)]
        except Exception as error:
            self.tell(name, way, "FAILED", told(error))
            return
        detail = ""
        if wrong:
            off, least = (float((x[wrong[0]].double() - exact[wrong[0]]).abs().max()) for x in (got, want))
            detail = f"{len(wrong)} of {len(got)} results, the first {wrong[0]}: off by {off:.2g}, eager by {least:.2g}"
        r = Report(tuple(reports))
        numbers = {"seconds": seconds, "coverage": r.coverage, "could": r.could, "kernels": r.kernels, "graphs": len(reports)}
        self.tell(name, way, "WRONG" if wrong else "right", detail, **numbers)


def told(error: Exception) -> str:
    """A line about an error."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [""]
    line = next((line for line in lines if "Error" in line), lines[0])
    return f"{type(error).__name__}: {line.strip()}"


Row = dict[str, Any]


def line_of(row: Row) -> str:
    """A row, printed."""
    numbers = ""
    if "kernels" in row:
        numbers = f"{row['seconds']:5.1f} s {row['graphs']:2} graphs {row['kernels']:4} kernels coverage {row['coverage']:4.0%} of {row['could']:4.0%} "
    return f"{row['name']:34} {row['way']:18} {row['word']:11} {numbers}{row.get('detail', '')}"


class Pool:
    """Processes that take names in turn. One that ends, or takes too long for a model, is replaced.

    Args:
        jobs: how many.
        arguments: of each.
        limit: seconds for a model.
        end: when nothing more is begun, by ``time.monotonic``.
    """

    def __init__(self, jobs: int, arguments: Sequence[str], limit: float, end: float) -> None:
        self.jobs, self.arguments, self.limit, self.end = jobs, arguments, limit, end
        self.rows: list[Row] = []

    def run(self, names: Sequence[str]) -> list[Row]:
        """What became of all."""
        left: Queue[str] = Queue()
        for name in names:
            left.put(name)
        with ThreadPoolExecutor(self.jobs) as threads:
            for done in [threads.submit(self._serve, left) for _ in range(self.jobs)]:
                done.result()
        return self.rows

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        print(line_of(row), flush=True)

    def _serve(self, left: Queue[str]) -> None:
        process: subprocess.Popen[str] | None = None
        while not left.empty():
            try:
                name = left.get_nowait()
            except Empty:
                break
            if time.monotonic() > self.end:
                self._add({"name": name, "way": "", "word": "not reached"})
                continue
            if process is None or process.poll() is not None:
                command = [sys.executable, __file__, "--serve", *self.arguments]
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self._one(process, name)
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.wait()

    def _one(self, process: subprocess.Popen[str], name: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(self.limit, process.kill)
        timer.start()
        print(name, file=process.stdin, flush=True)
        while line := process.stdout.readline():
            if line.strip() == DONE:
                timer.cancel()
                return
            if line.startswith("{"):
                self._add(json.loads(line))
        timer.cancel()
        self._add({"name": name, "way": "", "word": "ENDED", "detail": f"the process ended with {process.wait()}"})


DONE = "done"


def main() -> None:
    """Run what the command line says."""
    options_parser = parser(__doc__)
    options_parser.add_argument("names", nargs="*")
    options_parser.add_argument("--jobs", type=int, default=14)
    options_parser.add_argument("--limit", type=float, default=150, help="seconds for a model")
    options_parser.add_argument("--seconds", type=float, default=500, help="begin nothing after so many")
    options_parser.add_argument("--ways", nargs="*", choices=list(WAYS), default=list(WAYS))
    options_parser.add_argument("--host", action="store_true", help="with the reference in place of kernels, without a GPU")
    options_parser.add_argument("--serve", action="store_true", help="run the models whose names come from standard input")
    options = options_parser.parse_args()
    if options.serve:
        runner = Runner(options.host, options.ways)
        for line in sys.stdin:
            runner.run(line.strip())
            print(DONE, flush=True)
        return
    end = time.monotonic() + options.seconds
    every = options.names or [f"timm/{name}" if kind == "timm" else name for kind, names in NAMES.items() for name in names]
    found = Pool(options.jobs, ["--ways", *options.ways, *(["--host"] if options.host else [])], options.limit, end).run(every)
    counts = Counter((row["way"], row["word"]) for row in found)
    table = [f"{way or 'both':18} {word:11} {n:4}" for (way, word), n in sorted(counts.items())]
    seconds = sorted(row["seconds"] for row in found if "kernels" in row)
    if seconds:
        table.append(f"first calls: median {seconds[len(seconds) // 2]:.1f} s, most {seconds[-1]:.1f} s, {options.jobs} processes at once")
    table += [line_of(row).rstrip() for row in found if row["word"] not in ("right", "not built", "not reached")]
    if options.host:
        print("\n".join(table))
    else:
        publish("model_zoo", table, options)


if __name__ == "__main__":
    main()

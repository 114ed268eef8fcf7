"""The commands of ``python -m taskfuse`` and their arguments."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, TextIO

from taskfuse.cli.load import Loaded, load
from taskfuse.cli.trial import exploration, recorded, trial
from taskfuse.cli.versions import versions
from taskfuse.errors import TaskfuseError
from taskfuse.lowering.plan_text import changes, plan_texts
from taskfuse.lowering.steps import STEPS
from taskfuse.options import read_options
from taskfuse.sim import Interleaving, Timeline

FILE = """an example's name; a Python program, by its path, with :function where the one that returns the fusion is not called build; a text of
a fusion or kernel, as print gives it; - for such a text on stdin"""


class ShownStage(Enum):
    """The stages that ``show`` prints."""

    FUSION = "fusion"
    KERNEL = "kernel"
    CUDA = "cuda"
    PTX = "ptx"
    SASS = "sass"
    LAUNCH = "launch"
    RESOURCES = "resources"
    CHANNELS = "channels"
    PLAN = "plan"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit status: 0, or 1 after an error, which is printed to stderr; :mod:`argparse` exits with 2 for wrong usage."""
    options = parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], None] = options.command
    try:
        with _plain_warnings():
            command(options)
            sys.stdout.flush()
    except TaskfuseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever reads has seen enough; what is still buffered must not fail at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The parser of all commands; ``command`` of its result is the function that runs."""
    root = argparse.ArgumentParser(prog="python -m taskfuse", description="taskfuse: any stage of a fusion, its simulation, its proof, its compilation.")
    root.add_argument("--version", action=_Versions, nargs=0, help="print the versions of all parts")
    commands = root.add_subparsers(required=True, metavar="command")

    show = commands.add_parser("show", help="print a stage", description="Print a stage of a fusion. No stage needs a GPU.")
    show.add_argument("stage", nargs="?", choices=[s.value for s in ShownStage], help="%(choices)s (default: kernel; with --step: plan)")
    _add_file(show)
    show.add_argument("--step", metavar="NAME", help=f"the state of lowering after a step: {', '.join(step.name for step in STEPS)}")
    show.add_argument("--diff", action="store_true", help="only what the step has changed")
    _add_target(show)
    show.add_argument("--debug", action="store_true", help="the debug build, whose waits are bounded and report timeouts")
    show.add_argument(
        "--witness", action="store_true", help="with a kernel, also print its witness: the math that it computes, and the content of each statement's results"
    )
    show.add_argument("--locations", action="store_true", help="with a kernel, plan or CUDA text, also print the source line of each statement")
    _add_extents(show)
    show.set_defaults(command=_show)

    simulate = commands.add_parser("simulate", help="simulate on random inputs", description="Simulate on random inputs and compare with NumPy.")
    _add_file(simulate)
    _add_extents(simulate)
    simulate.add_argument("--seed", type=int, default=0, metavar="S", help="picks the inputs and the interleaving (default: 0)")
    simulate.add_argument(
        "--interleaving", choices=[s.value for s in Interleaving], help="the order in which threads and engines run (default: the seed picks it)"
    )
    other = simulate.add_mutually_exclusive_group()
    other.add_argument("--explore", action="store_true", help="run under every interleaving, and print one that fails if there is one")
    other.add_argument(
        "--timeline",
        type=Path,
        metavar="PATH",
        help="print a timeline, and write it to PATH: a picture (.svg), or a trace for Perfetto or chrome://tracing",
    )
    simulate.set_defaults(command=_simulate)

    proof = commands.add_parser("verify", help="prove kernels", description="Prove kernels: exit status 0 only if all are proved.")
    _add_file(proof)
    proof.set_defaults(command=_verify)

    compiler = commands.add_parser("compile", help="compile to a cubin", description="Compile to a cubin and print its resources. Needs no GPU.")
    _add_file(compiler)
    _add_target(compiler)
    compiler.add_argument("--out", type=Path, metavar="PATH", help="the file, or a folder that exists (default: <kernel>.<arch>.cubin here)")
    compiler.set_defaults(command=_compile)

    cache = commands.add_parser("cache", help="the folder of compiled kernels", description="The folder of compiled kernels (TASKFUSE_CACHE_DIR).")
    cache.add_argument("action", choices=["info", "clear"], help="print where it is and how full; or remove all entries")
    cache.set_defaults(command=_cache)
    return root


def _add_file(to: argparse.ArgumentParser) -> None:
    to.add_argument("file", metavar="FILE", help=FILE)


def _add_target(to: argparse.ArgumentParser) -> None:
    to.add_argument("--arch", default="sm_90a", help="the architecture to compile for (default: sm_90a)")
    to.add_argument("--fast-math", action="store_true", help="approximate functions")


def _add_extents(to: argparse.ArgumentParser) -> None:
    to.add_argument("--set", action="extend", nargs="+", type=_extent, default=[], metavar="NAME=VALUE", dest="extents", help="values of symbolic extents")


def _extent(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not name.isidentifier() or not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE with a number")
    return name, int(value)


class _Versions(argparse.Action):
    """Prints the versions and exits; they are determined on demand."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        print(versions())
        parser.exit()


# -- the commands -------------------------------------------------------------------------------------------------------------------


def _show(options: argparse.Namespace) -> None:
    stage = ShownStage(options.stage or ("plan" if options.step else "kernel"))
    if stage is not ShownStage.PLAN and (options.step or options.diff):
        raise TaskfuseError(message=f"--step and --diff show the plan, not the stage {stage.value}", help="python -m taskfuse show plan FILE --step NAME")
    print("\n\n".join(_stage(loaded, stage, options).rstrip("\n") for loaded in load(options.file)))


def _stage(loaded: Loaded, stage: ShownStage, options: argparse.Namespace) -> str:
    given = dict(options.extents)
    match stage:
        case ShownStage.FUSION:
            return str(loaded.required_fusion())
        case ShownStage.KERNEL:
            return loaded.kernel().text(witness=options.witness, locations=options.locations)
        case ShownStage.CHANNELS:
            return str(loaded.kernel().channels())
        case ShownStage.PLAN:
            before, after = plan_texts(loaded.required_fusion(), options.step or "notes", locations=options.locations)
            return changes(before, after) if options.diff else after
        case ShownStage.CUDA:
            return loaded.kernel().cuda_source(fast_math=options.fast_math, debug=options.debug, locations=options.locations)
        case ShownStage.PTX:
            return loaded.kernel().ptx(options.arch, fast_math=options.fast_math, debug=options.debug)
        case ShownStage.SASS:
            return loaded.kernel().sass(options.arch, fast_math=options.fast_math, debug=options.debug)
        case ShownStage.RESOURCES:
            kernel = loaded.kernel()
            return f"{kernel.name} on {kernel.resources(options.arch, given, fast_math=options.fast_math, debug=options.debug)}"
        case ShownStage.LAUNCH:
            kernel = loaded.kernel()
            return f"{kernel.name}: {kernel.launch_shape(**given)}"


def _simulate(options: argparse.Namespace) -> None:
    interleaving = None if options.interleaving is None else Interleaving(options.interleaving)
    given, everything = dict(options.extents), load(options.file)
    if options.timeline is not None and len(everything) > 1:
        raise TaskfuseError(message=f"{options.file} has {len(everything)} fusions, but a timeline shows one", help="name one of them: FILE:function")
    for loaded in everything:
        if options.explore:
            found = exploration(loaded, given, options.seed)
            if found.failure is not None:
                raise TaskfuseError(message=str(found))
            print(found)
        elif options.timeline is not None:
            _timeline(recorded(loaded, given, options.seed, interleaving), options.timeline)
        else:
            print(trial(loaded, given, options.seed, interleaving))


def _timeline(timeline: Timeline, path: Path) -> None:
    """Print and write a timeline. Raises :class:`TaskfuseError`, whose message shows it, if the run ended with an error."""
    try:
        if path.suffix == ".svg":
            timeline.draw(path)
        else:
            timeline.save(path)
    except OSError as error:
        raise TaskfuseError(message=f"cannot write {path}: {error.strerror}") from None
    if timeline.error is not None:
        raise TaskfuseError(message=str(timeline))
    print(timeline)


def _verify(options: argparse.Namespace) -> None:
    certificates = [loaded.kernel().verify() for loaded in load(options.file)]
    text = "\n\n".join(map(str, certificates))
    if any(c.failures for c in certificates):
        raise TaskfuseError(message=text)
    print(text)


def _compile(options: argparse.Namespace) -> None:
    everything = load(options.file)
    out: Path | None = options.out
    if out is not None and len(everything) > 1 and not out.is_dir():
        raise TaskfuseError(message=f"{options.file} has {len(everything)} fusions, but {out} is not a folder", help="name one of them: FILE:function")
    for loaded in everything:
        kernel = loaded.kernel()
        file = f"{kernel.name}.{options.arch}.cubin"
        path = Path(file) if out is None else out / file if out.is_dir() else out
        code = kernel.cubin(options.arch, fast_math=options.fast_math)
        try:
            path.write_bytes(code)
        except OSError as error:
            raise TaskfuseError(message=f"cannot write {path}: {error.strerror}") from None
        print(f"{path}: {len(code)} bytes\n{kernel.name} on {kernel.resources(options.arch, fast_math=options.fast_math)}")


def _cache(options: argparse.Namespace) -> None:
    from taskfuse.cuda.disk import DiskCache

    settings = read_options()
    disk = DiskCache(settings.cache_dir, settings.cache_bytes)
    if options.action == "clear":
        print(f"{disk.folder}: {disk.clear()} entries removed")
    else:
        entries, size = disk.usage()
        print(f"{disk.folder}: {entries} entries, {size} of {disk.limit} bytes")


@contextmanager
def _plain_warnings() -> Generator[None]:
    """Print warnings like errors: their text, without a source line of this package."""

    def show(message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None) -> None:
        print(f"warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield

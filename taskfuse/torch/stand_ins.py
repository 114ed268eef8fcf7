"""Stand-ins for modules of Inductor, and for networkx, that AOTAutograd imports for a function or two.

A key of a graph asks Inductor for the sources of Triton kernels that the graph calls, for what users have registered for its code generators, and for digests
of torch and of Triton; the search for common subexpressions asks it where a graph writes to memory. For these, torch imports most of Inductor, with Triton,
templates of kernels and a start of worker processes, and reads hundreds of megabytes: more than a second of a first call. Here a module that is not imported
yet has the functions alone. Whatever else is asked of it is imported as ever.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, Final

import torch
from torch.fx import Graph, Node

from taskfuse.torch.installed import torch_key

WRAPPER: Final = "torch._inductor.codegen.wrapper"
MATCHER: Final = "torch._inductor.pattern_matcher"
GRAPHS: Final = "networkx"
REGION: Final = "mutation_region_id"
"""The name under which torch keeps the region of a node in its metadata."""


@contextmanager
def standing_in(module: str, functions: dict[str, Callable[..., Any]]) -> Generator[None]:
    """Inside, a module that is not imported yet has these functions; what else is asked of it is imported."""
    if module in sys.modules:
        yield
        return
    stand_in = _StandIn(module)

    def other(name: str) -> Any:
        if name.startswith("__"):  # the import system looks for __path__ and the like
            raise AttributeError(name)
        _leave(module)
        return getattr(resolve_name(module), name)

    vars(stand_in).update(functions, __getattr__=other)
    sys.modules[module] = stand_in
    try:
        yield
    finally:
        _leave(module)


class _StandIn(ModuleType):
    """A module that is not imported yet."""


def _leave(module: str) -> None:
    """Have the next import of a module import it."""
    if isinstance(sys.modules.get(module), _StandIn):
        del sys.modules[module]


@contextmanager
def keys_without_inductor() -> Generator[None]:
    """Inside, AOTAutograd makes keys of graphs without Inductor's code generators.

    Raises:
        ImportError, AttributeError: this torch has no such keys.
    """
    from torch._functorch._aot_autograd import autograd_cache

    make = autograd_cache.autograd_cache_key

    def key(*args: Any, **more: Any) -> Any:
        with standing_in(WRAPPER, {name: asking(f"{WRAPPER}:{name}") for name in _SOURCES}), short_keys():
            return make(*args, **more)

    autograd_cache.autograd_cache_key = key
    try:
        yield
    finally:
        autograd_cache.autograd_cache_key = make


_SOURCES: Final = ("user_defined_triton_kernel_transitive_closure_source_code",)


def asking(name: str) -> Callable[..., Any]:
    """A function that is imported when it is called."""

    def call(*args: Any) -> Any:
        _leave(name.split(":")[0])
        return resolve_name(name)(*args)

    return call


@contextmanager
def short_keys() -> Generator[None]:
    """Inside, keys lack what users have registered for Inductor's code generators, which are not imported for that, and the digest of Triton, which compiles
    nothing; and torch's files are not digested."""
    from torch._inductor import codecache

    found: dict[tuple[Any, str], Any] = {
        (codecache, "init_backend_registration"): _nothing,
        (codecache, "custom_backend_passes"): {},
        (codecache, "custom_backend_codegen_configs"): {},
        (codecache, "torch_key"): partial(torch_key, codecache.torch_key),
        (codecache.CacheBase, "get_system"): staticmethod(system),
    }
    others = {place: other for place, other in found.items() if hasattr(*place)}
    own: dict[tuple[Any, str], Any] = {place: vars(place[0])[place[1]] for place in others}
    for place, other in others.items():
        setattr(*place, other)
    try:
        yield
    finally:
        for place, value in own.items():
            setattr(*place, value)


def system() -> dict[str, Any]:
    """The GPU and the version of CUDA, as torch's keys have them."""
    try:
        name = torch.cuda.get_device_properties(torch.cuda.current_device()).name
    except (AssertionError, RuntimeError):  # torch was built without CUDA, or there is no GPU
        return {}
    return {"device": {"name": name}, "version": {"cuda": torch.version.cuda, "hip": torch.version.hip}}


def _nothing() -> None:
    pass


@contextmanager
def annotations_without_networkx() -> Generator[None]:
    """Inside, modules of AOTAutograd whose annotations name classes of networkx are imported without it. It is imported when they compute with it."""
    with standing_in(GRAPHS, {"DiGraph": asking(f"{GRAPHS}:DiGraph")}):
        yield


@contextmanager
def partition_without_inductor() -> Generator[None]:
    """Inside, the partitioner of AOTAutograd finds common subexpressions without Inductor's patterns."""
    with standing_in(MATCHER, {"compute_mutation_region_ids": number_regions, "same_mutation_regions": are_in_one_region}):
        yield


def number_regions(graph: Graph) -> None:
    """Number the parts of a graph between nodes that may write to memory; equal nodes of different parts need not have equal results."""
    number = 0
    for node in graph.nodes:
        number += _may_write(node)
        node.meta[REGION] = number


def are_in_one_region(a: Node, b: Node) -> bool:
    """Whether nothing writes to memory between two nodes."""
    return a.meta[REGION] == b.meta[REGION]


def _may_write(node: Node) -> bool:
    """Whether a node may write to memory: an op whose schema says so, or anything else that is no function of numbers or parts of results."""
    if node.op != "call_function":
        return node.op not in ("placeholder", "get_attr", "output")
    if isinstance(node.target, torch._ops.OpOverload):
        return bool(node.target._schema.is_mutable)
    return getattr(node.target, "__module__", "") not in ("_operator", "math", "torch")

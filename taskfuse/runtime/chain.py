"""Several kernels as one function on arrays: each reads the arguments and the results of those before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from taskfuse import ops
from taskfuse.errors import InputError, OutputError, UnsupportedError
from taskfuse.ir.arguments import bind_shapes
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.parser import parse_fusion
from taskfuse.ir.scalar import evaluate
from taskfuse.ir.storage import strided
from taskfuse.ir.tensor import TensorView
from taskfuse.kir import Kernel
from taskfuse.runtime.executable import Executable
from taskfuse.runtime.kernel import CompiledKernel, one_kernel
from taskfuse.runtime.views import StridedView
from taskfuse.schedule.copy import Renaming, embed
from taskfuse.schedulers.fallback import fallback

if TYPE_CHECKING:
    from taskfuse.check import Certificate
    from taskfuse.cuda.sequence import Routes
    from taskfuse.options import Backend
    from taskfuse.schedulers.schedule import Schedule


class Link(NamedTuple):
    """One of the executables.

    Attributes:
        run: the executable.
        arguments: names of its arguments, in order.
        outputs: names of its outputs.
    """

    run: Executable
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]


class UnreadFusion(NamedTuple):
    """A fusion as text, of which a call needs the arguments and the names of the outputs.

    Attributes:
        text: the whole.
        head: its arguments, with their dimensions.
        outputs: names.
    """

    text: str
    head: Fusion
    outputs: tuple[str, ...]


def unread(text: str, fusion: Fusion) -> UnreadFusion:
    """A fusion whose text is ``text``."""
    head = Fusion(fusion.name)
    head.dims.update(fusion.dims)
    head.integers += fusion.integers
    for scalar in fusion.scalars:
        head.add_scalar(scalar.name, scalar.dtype, scalar.promotes)
    for tv in fusion.inputs:
        head.add_input(head.new_tensor(tv.root, tv.dtype, logical=tv.logical, name=tv.name, location=tv.location))
    return UnreadFusion(text, head, tuple(tv.name for tv in fusion.outputs))


def views_of(arguments: Sequence[str], links: Sequence[Link]) -> tuple[str, ...]:
    """The names of the tensors that executables take and that are neither arguments nor made by one: they are views."""
    known = {*arguments, *(name for link in links for name in link.outputs)}
    return tuple(dict.fromkeys(name for link in links for name in link.arguments if name not in known))


def written_into(whole: Fusion, links: Sequence[Link], into: Sequence[tuple[str, str]]) -> list[tuple[tuple[int, int], ...]]:
    """For each link the numbers of its outputs that may be written into the array of an input that it takes, each with the number of that: no later link reads
    the input, or a view of it.

    Args:
        into: outputs of ``whole`` that belong into the array of an input, with that input.
    """
    views = {name: place.tensor.name for name in views_of(whole.arguments, links) if (place := strided(whole, whole.tensor(name))) is not None}
    found: list[tuple[tuple[int, int], ...]] = []
    later: set[str] = set()
    for link in reversed(links):
        own = [views.get(name, name) for name in link.arguments]
        pairs = [(output, source) for output, source in into if output in link.outputs and source in link.arguments and source not in later]
        found.append(tuple((link.outputs.index(o), link.arguments.index(s)) for o, s in pairs if own.count(s) == 1))
        later.update(own)
    return found[::-1]


class Chain(Executable):
    """Executables that run one after another, as one. Intermediate arrays are allocated by the framework of the arguments, in its stream; views of them that a
    link reads have their own strides. If the only arrays of a call are those of ``out=``, the first of them determines the framework.

    Args:
        fusion: the computation of all links; or its text, which is read on demand, with its arguments alone as a fusion and the names of its outputs.
        links: the executables, with the names of ``fusion``; kept as an attribute.
        schedule: the automatic schedule, if there is one.
    """

    __slots__ = ("_copies", "_head", "_into", "_is_called", "_is_short", "_lone", "_names", "_outputs", "_routes", "_views", "_whole", "links")

    def __init__(self, fusion: Fusion | UnreadFusion, links: Sequence[Link], schedule: Schedule | None = None) -> None:
        self.links = tuple(links)
        super().__init__(self.links[0].run.backend, schedule)
        self._whole = fusion
        self._head = fusion if isinstance(fusion, Fusion) else fusion.head  # its tensors are the inputs, at the least
        self._names = self._head.arguments
        self._outputs = fusion.outputs if isinstance(fusion, UnreadFusion) else tuple(tv.name for tv in fusion.outputs)
        self._copies: Executable | None = None
        self._views = {name: StridedView(self.fusion, name, self.backend) for name in views_of(self._names, links)}
        self._routes: Routes | None = None
        self._is_called = False
        made = [name for link in links for name in link.outputs]
        numbers = {*(s.name for s in self._head.scalars), *self._head.integers}
        self._lone = frozenset(k for k, link in enumerate(links) if numbers.issuperset(link.arguments))  # of those that take no array
        self._into = self._written_into()
        self._is_short = not numbers and not self._into and set(self._outputs) <= set(made) and len({*self._outputs}) == len(self._outputs)

    def _written_into(self) -> dict[int, int]:
        """The numbers of the results that are written into the array of an argument, each with that of the argument."""
        found: dict[int, int] = {}
        for link in self.links:
            if isinstance(link.run, CompiledKernel):
                places = {link.outputs[k]: link.arguments[source] for k, source in link.run.in_place.items()}
                whole = {output: source for output, source in places.items() if output in self._outputs and source in self._names}
                found |= {self._outputs.index(output): self._names.index(source) for output, source in whole.items()}
        return found

    def writes(self, output: str, source: str) -> bool:
        """Whether an output is written into the array of an argument that is read, by a kernel of which this is proved right."""
        return output in self._outputs and self._into.get(self._outputs.index(output)) == self._names.index(source)

    @property
    def fusion(self) -> Fusion:
        """The computation of all links; not to be changed."""
        if isinstance(self._whole, UnreadFusion):
            self._whole = parse_fusion(self._whole.text)
        return self._whole

    @property
    def kernel(self) -> Kernel:
        return self._only("kernel").kernel

    @property
    def certificate(self) -> Certificate:
        return self._only("certificate").certificate

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        return tuple(c for link in self.links for c in link.run.certificates)

    @property
    def is_open(self) -> bool:
        return any(link.run.is_open for link in self.links)

    def check_open(self, extents: Mapping[str, int]) -> None:
        for link in self.links:
            link.run.check_open(extents)

    def _only(self, what: str) -> Executable:
        if len(self.links) == 1:
            return self.links[0].run
        reason = f"fusion '{self.name}' runs {len(self.kernels)} kernels, each of which has a {what}"
        raise UnsupportedError(what=f"the {what} of several kernels", reason=reason, help=f"use {what}s")

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(kernel for link in self.links for kernel in link.run.kernels)

    @property
    def name(self) -> str:
        return self._head.name

    @property
    def arguments(self) -> tuple[str, ...]:
        return self._names

    def __call__(self, *args: Any, out: Any = None, stream: Any = None, seed: int = 0, **named: Any) -> tuple[Any, ...]:
        """Run them. See :meth:`Executable.__call__`.

        The first two calls, and the first with arguments of another signature (shapes, strides, dtypes), go the long way; on a GPU, those after them only
        fill in addresses (:mod:`taskfuse.cuda.sequence`). Results given as ``out=`` that are not all made by the last kernel are written at once if none
        overlaps another array; otherwise they are made elsewhere and copied at the end, so that no kernel reads what another one has overwritten.
        """
        if named:
            args = self.in_order(args, named)
        given: tuple[Any, ...] | None = None
        if out is not None:
            given = tuple(cast("Sequence[Any]", out)) if type(out) in (tuple, list) else (out,)
        if self._routes is not None and stream is None:
            quick = self._routes(args, given)
            if quick is not None:
                return quick
        sizes = self._sizes(args)
        if self._into:
            self._check_written(args, given)
        values: dict[str, Any] = dict(zip(self._names, args, strict=True))
        last = self.links[-1]
        is_direct = last.outputs == self._outputs
        targets = {} if given is None or is_direct or not self._are_apart(args, given, sizes) else dict(zip(self._outputs, given, strict=True))
        for number, link in enumerate(self.links):
            own = out if is_direct and link is last else None
            is_alone = number in self._lone and not self._head.inputs
            if own is None and given and (is_alone or not targets.keys().isdisjoint(link.outputs)):
                own = self._made(link, given[0], sizes, stream, targets)
            for name in link.arguments:
                if name not in values:
                    values[name] = self._view(self._views[name], values, sizes, stream, seed)
            try:
                made = link.run(*[values[name] for name in link.arguments], out=own, stream=stream, seed=seed)
            except (InputError, OutputError) as error:
                raise self._named(error, link.arguments, link.outputs) from None
            values.update(zip(link.outputs, made, strict=True))
        results = tuple(values[name] for name in self._outputs)
        if stream is None and self._is_short:
            self._learn(args, given, values)
        if given is None or is_direct or targets:
            return results
        left = [k for k in range(len(results)) if k not in self._into]
        if left and self._copies is None:
            self._copies = copies_of(self.name, [self.fusion.outputs[k] for k in left], self.backend)
        if self._copies is None or not self._into:
            return given if self._copies is None else self._copies(*results, out=out, stream=stream, seed=seed)
        self._copies(*(results[k] for k in left), out=tuple(given[k] for k in left), stream=stream, seed=seed)
        return given

    def _check_written(self, args: tuple[Any, ...], given: tuple[Any, ...] | None) -> None:
        """Raise :class:`OutputError` if an argument that is written overlaps another array of the call, which a kernel might read, or write, after it."""
        from taskfuse.cuda.arrays import Unfit  # only who launches pays for these imports
        from taskfuse.cuda.layout import ranges_overlap
        from taskfuse.runtime.arrays import addresses

        if given is not None and len(given) != len(self._outputs):
            reason = f"out= has {len(given)} arrays; there are {len(self._outputs)} outputs"
            raise OutputError(index=min(len(given), len(self._outputs)), fusion=self.name, reason=reason)
        inputs = args[: len(self._head.inputs)]
        others = [] if given is None else [given[k] for k in range(len(given)) if k not in self._into]
        try:
            ranges = [addresses(a) for a in (*inputs, *others)]
        except (Unfit, AttributeError):
            return  # a kernel says what is wrong
        for k, source in self._into.items():
            name, into = self._outputs[k], self._names[source]
            if given is not None and given[k] is not args[source]:
                reason, help = f"'{name}' is written into the array of '{into}'", "leave out out=, or give that array"
                raise OutputError(index=k, fusion=self.name, reason=reason, help=help)
            if any(ranges_overlap(ranges[source], other) for position, other in enumerate(ranges) if position != source):
                reason = f"'{name}' is written into the array of '{into}', which overlaps another array of the call"
                raise OutputError(index=k, fusion=self.name, reason=reason, help="pass memory of its own")

    def _are_apart(self, args: tuple[Any, ...], given: tuple[Any, ...], sizes: dict[str, int]) -> bool:
        """Whether kernels may write given results at once: each is made by one, and fits an array that overlaps no other."""
        from taskfuse.cuda.arrays import Unfit  # only who launches pays for these imports
        from taskfuse.cuda.layout import ranges_overlap
        from taskfuse.runtime.arrays import addresses, holds

        made = {name for link in self.links for name in link.outputs}
        if not made.issuperset(self._outputs) or len({*self._outputs}) < len(self._outputs) or len(given) != len(self._outputs):
            return False
        try:
            fit = all(holds(a, self._shape(tv, sizes), tv.dtype) for tv, a in zip(self.fusion.outputs, given, strict=True))
            ranges = [addresses(a) for a in (*given, *args[: len(self._head.inputs)])]
        except (Unfit, AttributeError, KeyError):
            return False
        own = {k: len(given) + source for k, source in self._into.items()}
        pairs = ((k, j) for k in range(len(given)) for j in range(k + 1, len(ranges)) if own.get(k) != j)
        return fit and not any(ranges_overlap(ranges[k], ranges[j]) for k, j in pairs)

    def _shape(self, tv: TensorView, sizes: dict[str, int]) -> tuple[int, ...]:
        return tuple(int(evaluate(a.extent, {s: sizes[s] for s in a.extent.free})) for a in tv.logical)

    def _made(self, link: Link, like: Any, sizes: dict[str, int], stream: Any, targets: Mapping[str, Any]) -> tuple[Any, ...]:
        """Arrays for what one kernel makes, of the framework and on the device of another one, where they are not among ``targets``."""
        from taskfuse.cuda.arrays import Unfit  # only who launches pays for these imports
        from taskfuse.runtime.arrays import empty

        made: list[Any] = []
        for tv in map(self.fusion.tensor, link.outputs):
            try:
                made.append(targets[tv.name] if tv.name in targets else empty(like, self._shape(tv, sizes), tv.dtype, None, stream))
            except Unfit as unfit:
                raise OutputError(index=0, fusion=self.name, reason=f"'{tv.name}' is made beside it: {unfit.reason}", help=unfit.help) from None
        return tuple(made)

    def _learn(self, args: tuple[Any, ...], given: tuple[Any, ...] | None, values: dict[str, Any]) -> None:
        """Remember what calls with such arguments do, if all kernels run on a GPU: from the second call on, as many programs call once."""
        if not self._is_called:
            self._is_called = True
            return
        launchers = [link.run.launcher for link in self.links if isinstance(link.run, CompiledKernel) and link.run.launcher is not None]
        if len(launchers) < len(self.links):
            return
        if self._routes is None:
            from taskfuse.cuda.sequence import Routes, SequencedKernel

            stages = [SequencedKernel(launcher, link.arguments, link.outputs) for launcher, link in zip(launchers, self.links, strict=True)]
            self._routes = Routes(launchers[0].kinds, stages, self._names, self._outputs, {name: view.base for name, view in self._views.items()})
        self._routes.learn(args, given, values)

    def _view(self, view: StridedView, values: dict[str, Any], sizes: dict[str, int], stream: Any, seed: int) -> Any:
        try:
            return view.of(values, sizes, stream, seed)
        except InputError as error:
            raise self._named(error, view.names) from None

    def _sizes(self, args: tuple[Any, ...]) -> dict[str, int]:
        """The values of the dimensions. There are as many arguments as wanted, and their shapes and integers agree, also between kernels."""
        self.check_count(len(args))
        shapes = [getattr(a, "shape", None) for a in args[: len(self._head.inputs)]]
        known = [s for s in shapes if s is not None]
        integers = args[len(args) - len(self._head.integers) :]
        return bind_shapes(self._head, known, integers) if len(known) == len(shapes) else {}

    def _named(self, error: InputError | OutputError, arguments: Sequence[str], outputs: Sequence[str] = ()) -> InputError | OutputError:
        """The error about an argument or an output of one kernel, as one of the call. What goes between kernels is neither."""
        own, of_call = (arguments, self._names) if isinstance(error, InputError) else (outputs, self._outputs)
        index, reason = error.fields["index"], str(error.fields["reason"])
        if own != of_call:
            if not isinstance(index, int) or index >= len(own):
                return error
            name = own[index]
            if name in self._views:
                reason = reason.replace(f"'{name}'", f"'{self._views[name].base}'")
                name = self._views[name].base
            if name not in of_call:
                return error
            index = of_call.index(name)
        return type(error)(index=index, fusion=self.name, reason=reason, notes=error.notes, help=error.help)

    def __reduce__(self) -> tuple[Any, ...]:
        return Chain, (self.fusion, self.links, self.schedule)

    def __repr__(self) -> str:
        return f"Chain({self.name!r}, {len(self.kernels)} kernels, backend={self.backend!r})"


def link(part: Fusion, run: Executable) -> Link:
    """What ``run`` computes, if ``part`` says so."""
    return Link(run, part.arguments, tuple(tv.name for tv in part.outputs))


def copies_of(name: str, outputs: Sequence[TensorView], backend: Backend) -> Executable:
    """Copies of arrays with the ranks and dtypes of outputs, with their names."""
    longest, names = max((tv.name for tv in outputs), key=len), dict[str, str]()
    with Fusion(name) as unnamed:
        for k, tv in enumerate(outputs):
            source = ops.define_tensor([ops.dim(f"n{k}_{d}", min=0) for d in range(tv.ndim)], dtype=tv.dtype, name=f"{longest}_{k}")
            copy = ops.copy(source)
            unnamed.add_output(copy)
            names[copy.name] = tv.name
    copies = Fusion(name)
    copies.dims.update(unnamed.dims)
    embed(unnamed, copies, Renaming(values=names))
    fallback(copies)
    return one_kernel(copies, backend)

"""Replay of transforms: the same derivation on other axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from taskfuse.ir.axes import Axis, AxisKind, Merge, Rasterize, Resize, Split, Swizzle, Transform, axis, joint_kind

KindOf = Callable[[Axis, AxisKind], AxisKind]


def same_kind(old: Axis, kind: AxisKind) -> AxisKind:
    """Outputs of a replayed transform are of the kind that follows from its new inputs."""
    return kind


def replay(transforms: Iterable[Transform], mapping: dict[Axis, Axis], kind_of: KindOf = same_kind) -> list[Transform]:
    """Copies of those ``transforms`` whose inputs are all in ``mapping`` (old axis -> new axis), which learns their outputs.

    Args:
        transforms: in the order they were made.
        mapping: extended in place.
        kind_of: the kind of a new axis, from the old axis and the kind that follows from the new inputs.
    """
    made: list[Transform] = []
    for t in transforms:
        if not all(a in mapping for a in t.inputs):
            continue
        inputs = tuple(mapping[a] for a in t.inputs)
        kind = inputs[0].kind
        for a in inputs[1:]:
            kind = joint_kind(axis(1, kind), a)
        outputs = tuple(axis(a.extent, kind_of(a, kind)) for a in t.outputs)
        made.append(rebuilt(t, inputs, outputs))
        mapping.update(zip(t.outputs, outputs, strict=True))
    return made


def rebuilt(t: Transform, inputs: tuple[Axis, ...], outputs: tuple[Axis, ...]) -> Transform:
    """The transform ``t`` between other axes."""
    match t:
        case Split():
            return Split(inputs[0], outputs[0], outputs[1])
        case Merge():
            return Merge(inputs[0], inputs[1], outputs[0])
        case Swizzle():
            return Swizzle(inputs[0], inputs[1], outputs[0], outputs[1])
        case Resize():
            return Resize(inputs[0], t.left, t.right, outputs[0])
        case Rasterize():
            return Rasterize(inputs, outputs[0], t.maps)


def ancestors(transforms: Sequence[Transform], axes: Iterable[Axis]) -> tuple[list[Transform], dict[Axis, None]]:
    """The transforms that ``axes`` derive from, in their order, and the axes that those start from (which no transform makes)."""
    wanted = dict.fromkeys(axes)
    found: list[Transform] = []
    for t in reversed(transforms):
        if any(a in wanted for a in t.outputs):
            found.append(t)
            wanted.update(dict.fromkeys(t.inputs))
    made = {a for t in found for a in t.outputs}
    return found[::-1], {a: None for a in wanted if a not in made}


def expand(domain: Sequence[Axis], transforms: Iterable[Transform]) -> list[Axis]:
    """``domain`` after ``transforms``: each puts its outputs at the place of its first input."""
    axes = list(domain)
    for t in transforms:
        first = min(axes.index(a) for a in t.inputs)
        head, tail = axes[:first], axes[first:]
        axes = [*head, *t.outputs, *(a for a in tail if a not in t.inputs)]
    return axes

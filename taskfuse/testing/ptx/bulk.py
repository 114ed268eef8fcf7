"""Bulk copies of boxes of tensors (PTX ISA, "Tensors", "cp.async.bulk.tensor")."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from taskfuse.testing.ptx.matrices import swizzled


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor, and the boxes in which it is copied. Axes are innermost first.

    Attributes:
        base: address of its first element.
        size: bytes of an element; ``kind``: its type, as instructions name it.
        strides: in bytes.
        box: elements of a box along each axis; ``steps``: from one of these to the next.
        span: bytes of the swizzle's span, 0: none.
    """

    base: int
    size: int
    kind: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    span: int

    @property
    def bytes(self) -> int:
        """Bytes of a box in Shared memory."""
        return self.size * prod(self.box)

    def elements(self, shared: int, coordinates: Sequence[int]) -> Iterator[tuple[int, int | None]]:
        """For each element of a box: its address in Shared memory, and in Global memory; ``None``: it is outside of the tensor."""
        for k, index in enumerate(product(*(range(n) for n in reversed(self.box)))):
            at = [c + i * s for c, i, s in zip(coordinates, reversed(index), self.steps, strict=True)]
            inside = all(0 <= i < n for i, n in zip(at, self.shape, strict=True))
            place = self.base + sum(i * s for i, s in zip(at, self.strides, strict=True)) if inside else None
            yield swizzled(shared + k * self.size, self.span), place


def loaded(box: TensorMap, shared: int, coordinates: Sequence[int], read: Callable[[int], bytes]) -> list[tuple[int, bytes]]:
    """What a copy to Shared memory writes: addresses and bytes; elements outside of the tensor are 0."""
    return [(to, bytes(box.size) if source is None else read(source)) for to, source in box.elements(shared, coordinates)]

"""Frames: the memory that one launch reads: configuration, parameters and their addresses, in one block.

::

    byte 0    CUlaunchConfig: grid[3], block[3], shared bytes (32 bits each), stream, attributes, number of attributes (64 bits each)
              CUlaunchAttribute[...]: id, padding, 64 bytes of value
              void* parameters[...]
              the parameters

The driver reads the frame during the launch call and keeps no reference to it. A frame belongs to one call at a time; a plan keeps the free ones.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import NamedTuple

from taskfuse.cuda.abi import ATTRIBUTE, CLUSTER_DIMENSION, CONFIG, COOPERATIVE, PROGRAMMATIC_STREAM_SERIALIZATION
from taskfuse.cuda.driver import Driver
from taskfuse.cuda.tensormap import MAP_ALIGNMENT
from taskfuse.reports.resources import LaunchShape

WORD = 8
STREAM_WORD = 4  # of CUlaunchConfig


class FrameLayout(NamedTuple):
    """The content of the frames of a plan, without the stream, the addresses of arrays and the run-time scalars.

    Attributes:
        content: the bytes, with addresses inside the frame relative to its start.
        relocations: words that hold such addresses.
        parameters: byte at which the array of addresses begins.
        offsets: byte of each parameter.
    """

    content: bytes
    relocations: tuple[int, ...]
    parameters: int
    offsets: tuple[int, ...]


def frame_layout(shape: LaunchShape, cooperative: bool, overlapping: bool, parameters: Sequence[bytes]) -> FrameLayout:
    """The layout for parameters with the given bytes. A parameter of 128 bytes (a tensor map) is aligned to 64 bytes, others to 8.

    Args:
        cooperative: all blocks must be resident at once.
        overlapping: its blocks may start when those of its predecessor have ended, before all writes of these are visible: the kernel
            waits for them itself (:data:`taskfuse.cuda.instructions.STREAM_WAIT`).
    """
    attributes = b""
    if cooperative:
        attributes += ATTRIBUTE.pack(COOPERATIVE, 1, 0, 0)
    if overlapping:
        attributes += ATTRIBUTE.pack(PROGRAMMATIC_STREAM_SERIALIZATION, 1, 0, 0)
    if shape.cluster != (1, 1, 1):
        attributes += ATTRIBUTE.pack(CLUSTER_DIMENSION, *shape.cluster)
    table = CONFIG.size + len(attributes)
    end = table + WORD * len(parameters)
    offsets: list[int] = []
    tail = bytearray()
    for value in parameters:
        alignment = MAP_ALIGNMENT if len(value) > MAP_ALIGNMENT else WORD
        offset = -(-(end + len(tail)) // alignment) * alignment
        tail += bytes(offset - end - len(tail)) + value
        offsets.append(offset)
    tail += bytes(-(end + len(tail)) % WORD)
    config = CONFIG.pack(*shape.grid, *shape.block, shape.shared_bytes, 0, CONFIG.size if attributes else 0, len(attributes) // ATTRIBUTE.size)
    content = config + attributes + struct.pack(f"<{len(offsets)}Q", *offsets) + bytes(tail)
    inside = [table // WORD + k for k in range(len(offsets))]
    return FrameLayout(content, tuple([STREAM_WORD + 1] * bool(attributes) + inside), table, tuple(offsets))


EMPTY_FRAME = FrameLayout(bytes(CONFIG.size), (), CONFIG.size, ())
"""The layout of a plan without a launch."""


class MapSlot:
    """A tensor map in a frame: its address, the position of its array among the arrays of the call, and the array's address in the map."""

    __slots__ = ("address", "pointer", "position")

    def __init__(self, address: int, position: int, pointer: int) -> None:
        self.address = address
        self.position = position
        self.pointer = pointer


class Frame:
    """A frame.

    Attributes:
        words, block: the whole frame, as 64-bit words and as bytes.
        launch: launches the kernel with it; returns the driver's result.
        maps: its tensor maps.
        context: a cell for the current context; ``get_context`` fills it.
        report: address of the report of a debug build, in host memory; 0 before the first launch.

    Args:
        layout: its content.
        maps: of each tensor map, its byte in the frame, the position of its array, and that array's current address.
        function: handle of the kernel; 0: no launch.
    """

    __slots__ = ("_buffer", "block", "context", "get_context", "launch", "maps", "report", "words")

    def __init__(self, driver: Driver, function: int, layout: FrameLayout, maps: Sequence[tuple[int, int, int]]) -> None:
        self._buffer = ctypes.create_string_buffer(len(layout.content) + MAP_ALIGNMENT)
        begin = ctypes.addressof(self._buffer)
        skip = -begin % MAP_ALIGNMENT
        self.block = memoryview(self._buffer).cast("B")[skip : skip + len(layout.content)]
        self.block[:] = layout.content
        self.words = self.block.cast("Q")
        address = begin + skip
        for word in layout.relocations:
            self.words[word] += address
        self.launch = driver.launch(function, address, address + layout.parameters) if function else _nothing
        self.maps = tuple(MapSlot(address + offset, position, pointer) for offset, position, pointer in maps)
        self.report = 0
        self.context = ctypes.c_void_p()
        self.get_context = driver.get_context(ctypes.addressof(self.context))


def _nothing() -> int:
    return 0

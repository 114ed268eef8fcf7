"""The readers of a fusion: its text, picture, graphs and NumPy reference, plugged into the methods of :class:`~taskfuse.ir.fusion.Fusion`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.ir.arguments import in_order
from taskfuse.ir.calls import bind_fusion_readers
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.graph import task_graph, tensor_graph
from taskfuse.ir.parser import parse_fusion
from taskfuse.ir.picture import fusion_picture
from taskfuse.ir.printer import fusion_to_text
from taskfuse.ir.storage import strided
from taskfuse.ir.tensor import TensorView

if TYPE_CHECKING:
    import networkx as nx


class Readers:
    """Text, picture, graphs and reference."""

    def text(self, fusion: Fusion) -> str:
        """:func:`taskfuse.ir.printer.fusion_to_text`."""
        return fusion_to_text(fusion)

    def parse(self, text: str) -> Fusion:
        """:func:`taskfuse.ir.parser.parse_fusion`."""
        return parse_fusion(text)

    def picture(self, fusion: Fusion) -> str:
        """:func:`taskfuse.ir.picture.fusion_picture`."""
        return fusion_picture(fusion)

    def graph(self, fusion: Fusion) -> nx.DiGraph[str]:
        """:func:`taskfuse.ir.graph.tensor_graph`."""
        return tensor_graph(fusion)

    def task_graph(self, fusion: Fusion) -> nx.DiGraph[str]:
        """:func:`taskfuse.ir.graph.task_graph`."""
        return task_graph(fusion)

    def base(self, fusion: Fusion, view: TensorView) -> TensorView | None:
        """The input that a tensor is, or of which it is a view with strides; ``None`` if it is neither."""
        found = strided(fusion, view)
        tensor = view if found is None else found.tensor
        return tensor if tensor.is_input else None

    def evaluate(
        self, fusion: Fusion, args: tuple[NDArray[Any] | float | int, ...], named: Mapping[str, Any], options: dict[str, Any]
    ) -> tuple[np.ndarray, ...]:
        """:func:`taskfuse.ir.evaluate.evaluate`."""
        return evaluate(fusion, in_order(fusion, args, named), **options)


bind_fusion_readers(Readers())

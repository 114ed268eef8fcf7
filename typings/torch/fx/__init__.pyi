# The parts of torch.fx that taskfuse/torch reads.

from collections.abc import Iterable, Iterator
from typing import Any

class Node:
    op: str
    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    meta: Any
    users: dict[Node, None]
    all_input_nodes: list[Node]
    def is_impure(self) -> bool: ...

class _Nodes(Iterable[Node]):
    def __iter__(self) -> Iterator[Node]: ...
    def __reversed__(self) -> Iterator[Node]: ...

class Graph:
    nodes: _Nodes

class GraphModule:
    graph: Graph
    def forward(self, *args: Any) -> Any: ...
    def parameters(self) -> Iterable[Any]: ...

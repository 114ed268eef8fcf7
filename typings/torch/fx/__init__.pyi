# The parts of torch.fx that taskfuse/torch reads.

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
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
    def replace_all_uses_with(self, replace_with: Node) -> list[Node]: ...

class _Nodes(Iterable[Node]):
    def __iter__(self) -> Iterator[Node]: ...
    def __reversed__(self) -> Iterator[Node]: ...

class Graph:
    nodes: _Nodes
    def inserting_before(self, n: Node) -> AbstractContextManager[None]: ...
    def call_function(self, the_function: Any, args: tuple[Any, ...] = ..., kwargs: dict[str, Any] = ...) -> Node: ...
    def erase_node(self, to_erase: Node) -> None: ...

class GraphModule:
    graph: Graph
    def forward(self, *args: Any) -> Any: ...
    def parameters(self) -> Iterable[Any]: ...

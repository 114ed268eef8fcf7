"""The picture of a fusion: tensors with edges from producers to readers, in the boxes of their tasks and groups."""

from __future__ import annotations

from taskfuse.ir.assignment import places
from taskfuse.ir.draw_layout import DrawnBox, arrange, route
from taskfuse.ir.expr import op_text
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import shape_text
from taskfuse.ir.storage import producers
from taskfuse.ir.tasks import Group, Node, Task, are_roles, joint
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import GroupKind
from taskfuse.svg import FONT, Drawing, text_width

_LEAF_PADDING, _LINE_HEIGHT, _BORDER = 8.0, 15.0, 10.0
_INPUT, _TENSOR, _TASK, _GROUPS = "#ececec", "#ffffff", "#e9f0fb", {GroupKind.HORIZONTAL: "#e6f4e6", GroupKind.VERTICAL: "#fff3dc"}
_IN_TURN = "#f4f4f4"
_CHANNEL = "#d9730d"
_KEY = "an arrow: reads; orange: through a channel, between roles; thick frame: output"


def fusion_picture(fusion: Fusion) -> str:
    """The picture as SVG, without views, which have no code: edges lead from the tensor behind a view to its readers."""
    return _FusionPicture(fusion).draw()


class _FusionPicture:
    """One picture in progress."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.place = places(fusion)
        self.drawing = Drawing()
        self.leaf: dict[TensorView, DrawnBox] = {}
        self.nodes: dict[DrawnBox, Node] = {}
        self.lines: dict[TensorView, list[str]] = {}

    def draw(self) -> str:
        fusion, drawing = self.fusion, self.drawing
        shown = [tv for tv in fusion.tensors() if tv.is_input or tv in self.place]
        for tv in shown:
            lines = self.lines[tv] = self._lines(tv)
            self.leaf[tv] = DrawnBox(max(map(text_width, lines)) + 2 * _LEAF_PADDING, _LINE_HEIGHT * len(lines) + _LEAF_PADDING)
        claimed = [self._box(m) for m in fusion.tasks.root.members]
        rest: dict[Task, list[TensorView]] = {}
        for tv in shown:
            if not tv.is_input and self.place[tv] not in fusion.tasks.nodes:
                rest.setdefault(self.place[tv], []).append(tv)
        alone = not claimed  # without tasks the picture is of the tensors
        pieces = [self.leaf[tv] for tvs in rest.values() for tv in tvs] if alone else [self._task(task, tvs) for task, tvs in rest.items()]
        root = DrawnBox(text_width(_KEY, FONT - 1) + 2 * _BORDER, 0.0, [*(self.leaf[tv] for tv in shown if tv.is_input), *claimed, *pieces])
        edges = {(p, tv): None for tv in shown for p in producers(fusion, tv) if p in self.leaf}
        arrange(root, [(self.leaf[a], self.leaf[b]) for a, b in edges])
        drawing.width, drawing.height = root.width, root.height + _LINE_HEIGHT + _BORDER
        drawing.text(_BORDER, 16, f"fusion {fusion.name}", bold=True)
        for box in root.inside:
            self._frames(box)
        for a, b in edges:
            self._edge(a, b)
        for box, node in self.nodes.items():
            fill = _fill(node)
            drawing.box(box.x + _BORDER - 3, box.y + 4, text_width(_title(node)) + 6, 14, fill, line=fill)
            drawing.text(box.x + _BORDER, box.y + 15, _title(node), bold=True)
        for tv in shown:
            self._tensor(tv)
        drawing.text(_BORDER, drawing.height - _BORDER, _KEY, size=FONT - 1, fill="#555555")
        return str(drawing)

    # -- boxes ------------------------------------------------------------------------------------------------------------------------

    def _box(self, node: Node) -> DrawnBox:
        match node:
            case Task():
                return self._task(node, [tv for tv, task in self.place.items() if task is node])
            case Group():
                box = DrawnBox(text_width(_title(node)) + 2 * _BORDER)
                self.nodes[box] = node
                box.inside = [self._box(m) for m in node.members]
                return box

    def _task(self, task: Task, tensors: list[TensorView]) -> DrawnBox:
        ordered = sorted(tensors, key=self._first_read)
        box = DrawnBox(text_width(_title(task)) + 2 * _BORDER, 0.0, [self.leaf[tv] for tv in ordered])
        self.nodes[box] = task
        return box

    def _first_read(self, tv: TensorView) -> int:
        """Tensors that do not depend on each other stand in the order of what they read, so that edges cross less."""
        return min((p.id for p in producers(self.fusion, tv)), default=tv.id)

    def _frames(self, box: DrawnBox) -> None:
        """The frames of a node and of those in it, outer ones below."""
        node = self.nodes.get(box)
        if node is None:
            return
        self.drawing.box(box.x, box.y, box.width, box.height, _fill(node), round=6, dashed=isinstance(node, Group) and node.ptype is None)
        for inner in box.inside:
            self._frames(inner)

    # -- tensors ----------------------------------------------------------------------------------------------------------------------

    def _lines(self, tv: TensorView) -> list[str]:
        expr = self.fusion.definition(tv)
        head = tv.name if expr is None else f"{tv.name} = {op_text(expr)}"
        lines = [head, f"{tv.dtype.name}{shape_text(tv.shape)}"]
        where = [] if tv.schedule.memory is None else [tv.schedule.memory.value]
        if tv.schedule.stages > 1:
            where.append(f"{tv.schedule.stages} slots")
        return [*lines, ", ".join(where)] if where else lines

    def _tensor(self, tv: TensorView) -> None:
        box = self.leaf[tv]
        fill = _INPUT if tv.is_input else _TENSOR
        self.drawing.box(box.x, box.y, box.width, box.height, fill, weight=2.2 if tv.is_output else 1, round=10 if tv.is_input else 3)
        for k, line in enumerate(self.lines[tv]):
            self.drawing.text(box.x + box.width / 2, box.y + _LINE_HEIGHT * (k + 1) - 1, line, anchor="middle", bold=k == 0)

    def _edge(self, a: TensorView, b: TensorView) -> None:
        start, end = self.leaf[a], self.leaf[b]
        obstacles = [box for box in self.leaf.values() if box is not start and box is not end]
        points = route((start.x + start.width / 2, start.y + start.height), (end.x + end.width / 2, end.y), obstacles)
        channel = self._is_channel(a, b)
        self.drawing.curve(points, line=_CHANNEL if channel else "#555555", weight=2 if channel else 1, note=f"{b.name} reads {a.name}")

    def _is_channel(self, a: TensorView, b: TensorView) -> bool:
        """True if the nodes where the ways to two tensors part are roles: members of a parallelized vertical group."""
        if a.is_input:
            return False
        return self.place[a] is not self.place[b] and are_roles(joint(self.place[a], self.place[b]))


def _fill(node: Node) -> str:
    if isinstance(node, Task):
        return _TASK
    return _IN_TURN if node.ptype is None else _GROUPS.get(node.kind, _IN_TURN)


def _title(node: Node) -> str:
    if isinstance(node, Task):
        return node.name
    if node.ptype is None:
        return f"{node.name}: in turn" if len(node.members) > 1 else node.name
    return f"{node.name}: {node.kind.value} on {node.ptype.value}"

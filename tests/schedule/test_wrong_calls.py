"""Scheduling calls with arguments that do not fit, in number or in kind: an error of taskfuse with advice, never a bare one of Python."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from inspect import Parameter, isclass, isfunction, signature
from pathlib import Path
from typing import Any, cast

import pytest

import taskfuse as tf
from taskfuse.errors import CallError, TaskfuseError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tasks import Group, Task
from taskfuse.ir.tensor import AxisRef, TensorView

TF: Any = tf
KINDS: tuple[Any, ...] = (None, "x", 1.5, [], ["a"], object(), {"a": 1}, (1, 2, 3), {0: "x"}, [None])
OF_FUSIONS = ("add_output", "set_strides", "rename", "tensor", "task", "group", "draw", "partition", "order", "resident_blocks", "inline_at", "inline_most")
OF_MODULE = ("cascade", "chunk_cascade", "segment", "split_products", "copy_fusion", "parallelize_like", "widened")


def made() -> dict[type, Any]:
    """An object of each class that has scheduling calls."""
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([8, 16], name="x")
        y = tf.exp(x)
        z = tf.sum(y, 1)
        fusion.add_output(z)
    tasks = fusion.task([y]), fusion.task([z])
    return {Fusion: fusion, TensorView: z, AxisRef: y.axis(0), Task: tasks[0], Group: fusion.group(tasks)}


def public(owner: Any) -> list[str]:
    """The names of the functions of a class or a module."""
    members = cast("dict[str, Any]", vars(owner))
    home = str(owner.__module__ if isclass(owner) else owner.__name__)
    return [n for n, m in members.items() if isfunction(m) and not n.startswith("_") and str(m.__module__).startswith(home)]


CALLS: dict[str, tuple[Callable[..., Any], type | None]] = {
    **{f"{c.__name__}.{n}": (getattr(c, n), c) for c in (TensorView, AxisRef, Task, Group) for n in public(c)},
    **{f"Fusion.{n}": (getattr(Fusion, n), Fusion) for n in OF_FUSIONS},
    **{n: (getattr(TF, n), None) for n in OF_MODULE},
    **{f"{m.__name__.split('.')[-1]}.{n}": (getattr(m, n), None) for m in (TF.tiles, TF.layouts) for n in public(m)},
}
"""Functions, and of what they are methods."""


@pytest.mark.parametrize("name", CALLS)
def test_no_error_of_python(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a picture is written to what may be a path
    function, cls = CALLS[name]

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*(() if cls is None else (made()[cls],)), *args, **kwargs)

    parameters = list(signature(function).parameters.values())[cls is not None :]
    plain = [p for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
    if not any(p.kind is Parameter.VAR_POSITIONAL for p in parameters):
        with pytest.raises(CallError, match="too many positional arguments"):
            call(*[0] * (len(plain) + 1))
    with pytest.raises(CallError, match=r"nothing|missing a required argument"):
        call(nothing=1)
    for place in range(len(plain)):
        for value in KINDS:
            with suppress(TaskfuseError, ValueError):  # some values fit, some are out of range
                call(*[value if k == place else 0 for k in range(len(plain))])


def test_what_is_said() -> None:
    objects = made()
    for call, text in (
        (lambda: objects[TensorView].clamp_read(1, 2), "clamp_read: too many positional arguments"),
        (lambda: TF.tiles.halves(3), "halves: first: 3 is not of type Half"),
        (lambda: TF.layouts.padded("4"), "padded: elements: '4' is not of type int"),
        (lambda: objects[Fusion].task([objects[TensorView]], 3), "task: name: 3 is not of type str | None"),
        (lambda: objects[AxisRef].parallelize(), "parallelize: missing a required argument: 'ptype'"),
    ):
        with pytest.raises(CallError) as caught:
            call()
        assert caught.value.message == text
        assert "help: " in str(caught.value)

"""Texts that are made from the tables of ops: the module of elementwise functions, and the page of ops. `make golden` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ops.pointwise import __all__ as BY_HAND
from taskfuse.ops.registry import OPS, Op, OpKind

MODULE = '''"""Elementwise functions. Made from the rows of :mod:`taskfuse.ir.elementwise` by `make golden`: change a row, not this module.

Operands are tensors, run-time scalars and Python numbers. They broadcast and promote as in NumPy 2 (see
:func:`taskfuse.dtypes.result_type`). Functions with float results turn bool and integers into floats. Every function raises
:class:`~taskfuse.errors.DTypeError`, :class:`~taskfuse.errors.ShapeError` or :class:`~taskfuse.errors.FusionError` at the call.
"""

from __future__ import annotations

from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.tensor import TensorView, Value
from taskfuse.ops.build import pointwise
from taskfuse.ops.registry import elementwise

__all__ = [
{names}
]
{functions}
'''

FUNCTION = '''

@elementwise
def {name}({parameters}) -> TensorView:
    """{doc}"""
    return pointwise(ELEMENTWISE["{name}"], {operands})
'''

PAGE = """# Ops
This page lists every op of taskfuse; `make golden` writes it from the tables of ops. Ops are functions of `taskfuse` (`tf.exp`), broadcast and
promote as in NumPy 2 ([fusion.md](fusion.md#dtypes-and-promotion)), and check their operands at the call. `tf.supports` says whether an op exists, also by
its name in torch. An op with a name of torch computes the same as in torch; arguments may have other names, and promotion follows NumPy.

```python
import taskfuse as tf

print(tf.supports("exp"), tf.supports("torch.clip", "int32"), tf.supports("bitwise_and", tf.float32), tf.supports("unique"))
```
```text
True True False False
```

{sections}
"""


def elementwise_module() -> str:
    """The text of ``taskfuse/ops/elementwise.py``."""
    rows = [row for row in ELEMENTWISE.values() if row.name not in BY_HAND]
    names = "\n".join(f'    "{name}",' for name in sorted((row.name for row in rows), key=_natural))
    functions = [
        FUNCTION.format(name=row.name, parameters=", ".join(f"{p}: Value" for p in row.operands), doc=row.doc, operands=_tuple(row.operands)) for row in rows
    ]
    return MODULE.format(names=names, functions="".join(functions).rstrip("\n"))


def _tuple(names: tuple[str, ...]) -> str:
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def _natural(name: str) -> list[tuple[bool, str, int]]:
    """The order of the linter: log1p, log2, log10."""
    return [(not part.isdigit(), part if not part.isdigit() else "", int(part) if part.isdigit() else 0) for part in re.findall(r"\d+|\D+", name)]


def ops_page() -> str:
    """The text of ``docs/ops.md``."""
    return PAGE.format(sections="\n\n".join(_section(kind) for kind in OpKind))


def _section(kind: OpKind) -> str:
    ops = [op for op in OPS.values() if op.kind is kind]
    if kind is OpKind.MISSING:
        rows = [f"| `{op.name}` | {op.doc.removeprefix('Not supported: ')} | {op.instead} |" for op in ops]
        return "\n".join([f"## {kind.value}", "| op | why | instead |", "|---|---|---|", *rows])
    if kind is OpKind.ELEMENTWISE:  # also those that the module, which this text is made beside, does not have yet
        rows = [_row(OPS[row.name]) if row.name in BY_HAND else _new_row(row) for row in ELEMENTWISE.values()]
    else:
        rows = [_row(op) for op in ops]
    return "\n".join([f"## {kind.value}", "| op | what it gives | NumPy, torch |", "|---|---|---|", *rows])


def _row(op: Op) -> str:
    return f"| `{_call(op)}` | {_plain(op.doc)} | {_names(op.numpy, op.torch)} |"


def _new_row(row: Elementwise) -> str:
    torch = row.name if row.torch is None else row.torch
    return f"| `{row.name}({', '.join(row.operands)})` | {_plain(row.doc)} | {_names(row.numpy_name, torch.split())} |"


def _call(op: Op) -> str:
    return re.sub(r"<\w+\.\w+: ([^>]*)>", r"\1", f"{op.name}({op.parameters})")


def _plain(doc: str) -> str:
    return re.sub(r":\w+:`~?([^`]*)`", r"`\1`", doc).replace("``", "`").replace("|", "\\|")


def _names(numpy: str | None, torch: Iterable[str]) -> str:
    return ", ".join([f"`np.{numpy}`"] * bool(numpy) + [f"`{name}`" for name in torch])

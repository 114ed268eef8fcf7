"""Random allocation domains: by name, by another order of the axes, or by explicit splits, merges, pads and swizzles."""

from __future__ import annotations

import taskfuse as tf
from taskfuse.ir.tensor import TensorView
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.program import REFUSALS, SpelledArgument


def layout(chooser: Chooser, tv: TensorView, name: str) -> SpelledArgument:
    """An allocation domain for a tensor that is written ``name``."""
    match chooser.integer(0, 5):
        case 0:
            elements = chooser.pick((1, 1, 2, 3))
            return SpelledArgument(f"tf.layouts.padded({elements})", tf.layouts.padded(elements))
        case 1:
            return SpelledArgument("tf.layouts.rowmajor()", tf.layouts.rowmajor())
        case 2:
            order = chooser.order(range(tv.ndim))
            return SpelledArgument(f"[{', '.join(f'{name}.logical[{k}]' for k in order)}]", tuple(tv.logical[k] for k in order))
        case 3:
            span = chooser.pick((32, 64))
            return SpelledArgument(f"tf.layouts.swizzled({span})", tf.layouts.swizzled(span))
        case _:
            return _by_hand(chooser, tv, name)


def _by_hand(chooser: Chooser, tv: TensorView, name: str) -> SpelledArgument:
    """A few transforms of the default allocation domain; the generator skips calls that taskfuse refuses."""
    builder, text = tf.allocation(tv), f"tf.allocation({name})"
    for _ in range(chooser.integer(0, 3)):
        n = len(builder.axes)
        if not n:
            break
        at = chooser.integer(0, n - 1)
        try:
            match chooser.integer(0, 4):
                case 0 | 1:
                    factor = chooser.pick((2, 3, 4, 5))
                    builder.split(at, factor)
                    text += f".split({at}, {factor})"
                case 2:
                    elements = chooser.pick((1, 2))
                    builder.pad(at, elements)
                    text += f".pad({at}, {elements})"
                case 3 if n > 1:
                    order = chooser.order(range(n))
                    builder.reorder(order)
                    text += f".reorder({order})"
                case _ if at + 1 < n:
                    builder.merge(at)
                    text += f".merge({at})"
                case _:
                    pass
        except REFUSALS:
            continue
    return SpelledArgument(text, builder)

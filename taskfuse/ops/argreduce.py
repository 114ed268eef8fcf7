"""Where the greatest and the least element is.

Two reductions: the extreme itself, then the least position that has it. Both are the reductions of every schedule (serial, across threads and
blocks, in two steps), and first of equals follows from the least position, whatever the order. A NaN is where NumPy says: the first NaN is the
extreme.
"""

from __future__ import annotations

from taskfuse.dtypes import DType, int64
from taskfuse.ir.axes import AxisKind, axis, iteration_symbol
from taskfuse.ir.elementwise import COMBINES, ELEMENTWISE
from taskfuse.ir.expr import IndexValue, Literal, Pointwise, Read, Reduction
from taskfuse.ir.scalar import ZERO, Expr, ge, prove
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.build import check_tensor, described, normalize_axes, normalize_axis, shape_error

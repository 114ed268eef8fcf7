"""search_by: how kernels search a table."""

from __future__ import annotations

from dataclasses import replace

from taskfuse.dtypes import int32
from taskfuse.errors import shown
from taskfuse.ir.axes import axis
from taskfuse.ir.scalar import ZERO, Const, ge, prove, sym
from taskfuse.ir.tables import TableRange, held_places
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import PlaceSearch
from taskfuse.location import caller
from taskfuse.schedule.call import Call


def search_by(tv: TensorView, how: object, divisor: object) -> TensorView:
    """See :meth:`TensorView.search_by`."""
    call = Call("search_by", tv)
    fusion = tv.fusion
    known = fusion.tables.get(tv)
    if known is None:
        raise call.error(f"{tv.name} is not a table", "declare it with tf.table(...)")
    if not isinstance(how, PlaceSearch):
        raise call.error(f"{shown(how)} is not a kind of search", f"give one of {', '.join(map(str, PlaceSearch))}")
    if not isinstance(divisor, int) or isinstance(divisor, bool) or divisor < 1:
        raise call.error(f"{shown(divisor)} rows of a tile", "give a positive integer")
    if how is not PlaceSearch.TABLE:
        if divisor != 1:
            raise call.error(f"divisor={divisor}, which searches by {how.value} take from the math", "leave it out")
        fusion.tables[tv] = replace(known, search=how)
        return tv
    if known.lengths:
        raise call.error(f"{tv.name} has lengths, which kernels add up", "declare a table of the offsets, with rising=True")
    size = tv.shape[0]
    if known.low is not ZERO or (isinstance(size, Const) and size.value < 3) or not prove(ge(size, 2), fusion.facts()):
        raise call.error(f"{tv.name} is a table of {size} elements from {known.low} on", "use a table of at least two groups that begins with 0")
    holds, count = held_places(sym(tv.name), size, known.low, known.high, divisor)
    if any(other.holds is holds for other in fusion.tables.values()):
        raise call.error(f"there is a table of its places in tiles of {divisor} rows", "call it once")
    new = fusion.add_input(fusion.new_tensor([axis(count)], int32, name=f"{tv.name}_places{divisor}", location=caller()))
    fusion.tables[new] = TableRange(ZERO, size - 2, holds=holds)
    return new

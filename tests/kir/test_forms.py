"""Forms and fields: what printer, parser and traversal take from the classes of statements."""

from typing import get_args

import pytest

from taskfuse.ir.scalar import const
from taskfuse.ir.types import ParallelType
from taskfuse.kir.fields import types_of
from taskfuse.kir.forms import FORMS, RESERVED, STATEMENT_WORDS, OptionalPart, Slot, StatementForm, Word, form_of
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.operand_printer import OperandPrinter
from taskfuse.kir.operands import BarrierSlot, Located
from taskfuse.kir.synchronization import Arrive, MbarrierScope

CLASSES = get_args(Stmt)


# loops, branches, computations and barriers; and those whose first word has more than a name in it
OWN = {"For", "Bind", "If", "Compute", "Choose", "Barrier", "Advance", "WaitGroup", "Wgmma", "Mma", "LdMatrix", "StMatrix"}


def test_a_statement_has_a_form_or_a_syntax_of_its_own() -> None:
    assert {c.__name__ for c in CLASSES if form_of(c) is None} == OWN
    assert all(issubclass(c, Located) for c in CLASSES)
    assert STATEMENT_WORDS <= RESERVED
    assert {"COPY", "ARRIVE", "SETMAXNREG"} <= STATEMENT_WORDS


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.statement.__name__)
def test_what_a_form_names_is_printed_and_read(form: StatementForm) -> None:
    slots = [p.slot if isinstance(p, OptionalPart) else p for p in form.pieces if not isinstance(p, Word)]
    assert all(slot.type in OperandPrinter().values for slot in slots)
    named = {slot.name for slot in slots}
    assert named == types_of(form.statement).keys() - {"location", "holds"}


def test_pieces() -> None:
    form = form_of(Arrive)
    assert form is not None
    assert form.head == "ARRIVE"
    assert form.pieces == (
        Word("ARRIVE ", ("ARRIVE",)),
        Slot("barrier", BarrierSlot),
        OptionalPart(Word(" across ", ("across",)), Slot("across", tuple[ParallelType, ...]), ()),
        OptionalPart(Word(" scope ", ("scope",)), Slot("scope", MbarrierScope), MbarrierScope.BLOCK),
    )
    assert form.made({"barrier": BarrierSlot("b", const(0))}) == Arrive(BarrierSlot("b", const(0)))

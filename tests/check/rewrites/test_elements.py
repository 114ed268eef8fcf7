"""Elements that are equal on both sides, and those that nothing shows to be."""

import contextlib
import weakref

import pytest

import taskfuse as tf
from taskfuse.check.rewrites.combined import compare_terms
from taskfuse.check.rewrites.elements import ElementPairs, is_equal, shown
from taskfuse.check.rewrites.sides import At, Definitions, Different
from taskfuse.collector import PAUSE
from taskfuse.dtypes import float32
from taskfuse.ir.scalar import Facts, const, sym
from taskfuse.kir.operands import Access, Immediate
from tests.check.rewrites.rewritten import rewritten


def copied(f: tf.Fusion) -> None:
    """``exp(x) + x``, of a copy of ``x``."""
    x = tf.define_tensor([8], name="x")
    f.add_output(tf.exp(x) + x)
    x.cache_after()


def sides() -> tuple[Definitions, Definitions, str]:
    kernel = rewritten(copied)
    return Definitions.of(kernel, kernel.written), Definitions.of(kernel, kernel.definitions), kernel.outputs[0].name


def element(side: Definitions, name: str, at: int) -> At:
    return At(side, Access(name, (const(at),)))


def test_elements_by_one_rule_are_equal() -> None:
    written, now, out = sides()
    ElementPairs(compare_terms).check(element(written, out, 3), element(now, out, 3), Facts())


def test_what_failed_is_remembered_without_the_frames_that_it_went_through() -> None:
    """They refer to the comparison that remembers it, and only the collector would free both."""
    written, now, out = sides()
    with PAUSE:
        pairs = ElementPairs(compare_terms)
        held = weakref.ref(pairs)
        for _ in range(2):
            with contextlib.suppress(Different):
                pairs.check(element(written, out, 3), element(now, out, 4), Facts())
        del pairs
        assert held() is None


def test_another_element_is_different() -> None:
    written, now, out = sides()
    with pytest.raises(Different, match=r"x\[3\] was written, and x\[4\] is there"):
        ElementPairs(compare_terms).check(element(written, out, 3), element(now, out, 4), Facts())


def test_a_name_means_nothing_until_its_tensor_is_proved() -> None:
    written, now, out = sides()
    pairs = ElementPairs(compare_terms)
    nothing = Definitions({}, now.dtypes, frozenset())
    with pytest.raises(Different, match=r"tv2\[3\] was written, and tv2\[3\] is there"):
        pairs.check(element(written, out, 3), element(nothing, out, 3), Facts())
    pairs.restart()
    pairs.same.add(out)
    pairs.check(element(written, out, 3), element(nothing, out, 3), Facts())


def test_fresh_symbols_and_equal_indices() -> None:
    a, facts = ElementPairs(compare_terms).fresh(const(4), Facts())
    assert is_equal(a // 4, const(0), facts)
    assert not is_equal(a, const(0), facts)
    assert shown(At(sides()[1], Access("x", (sym("q"),)))) == "x[q]"
    assert shown(At(sides()[1], Immediate(1.0, float32))) == "1.0 of float32"


def summed(at: int) -> tuple[At, At]:
    """An element of sums of rows, and that of the sums of their chunks."""

    def chunked(f: tf.Fusion) -> None:
        y = tf.define_tensor([8, 12], name="x").sum(1)
        f.add_output(y)
        y.chunk_reduction(1, 4)

    kernel = rewritten(chunked)
    written, now = (Definitions.of(kernel, of) for of in (kernel.written, kernel.definitions))
    return element(written, kernel.outputs[0].name, at), element(now, kernel.outputs[0].name, at)


def test_a_comparison_that_rests_on_itself_shows_nothing() -> None:
    """That is told where the same is asked again, not when comparisons are too deep."""
    a, b = summed(3)
    asked: list[At] = []

    def again(pairs: ElementPairs, x: At, y: At, facts: Facts) -> None:
        asked.append(x)
        pairs.check(x, y, facts)

    with pytest.raises(Different, match="rests on itself"):
        ElementPairs(again).check(a, b, Facts())
    assert asked == [a]
    ElementPairs(compare_terms).check(a, b, Facts())


def test_a_failure_that_rests_on_a_comparison_under_way_is_asked_again() -> None:
    """One that fails while another is under way holds once that one does; one that fails in any case is not asked twice."""
    (a, b), (c, d), (e, f) = summed(3), summed(4), summed(5)
    asked: list[At] = []

    def compares(pairs: ElementPairs, x: At, y: At, facts: Facts) -> None:
        asked.append(x)
        if x.operand == e.operand:
            raise Different("it always is")
        if x.operand == c.operand:
            pairs.check(a, b, facts)
            return
        if x.operand != a.operand:
            raise Different("it has other terms")
        for one, other, reason in ((c, d, "its comparison rests on itself"), (e, f, "it always is"), (e, f, "it always is")):
            with pytest.raises(Different, match=reason):
                pairs.check(one, other, facts)

    pairs, facts = ElementPairs(compares), Facts()
    pairs.check(a, b, facts)
    pairs.check(c, d, facts)
    with pytest.raises(Different, match="it always is"):
        pairs.check(e, f, facts)
    assert [asked.count(x) for x in (a, c, e)] == [1, 2, 1]

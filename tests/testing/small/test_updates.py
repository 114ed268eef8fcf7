"""Small kernels that update elements."""

from taskfuse.check import verify
from taskfuse.testing.small.updates import updating
from tests.testing.small.drawn import drawn, lacks, needless


def test_they_have_what_they_are_for_and_need_it() -> None:
    found = drawn(updating, 40)
    assert lacks(found, "by add", "by maximum", "by bitwise_xor", "UPDATE", "width 4", "TMA y.map(0, 0) <- t[q.slot, 0, 0] by add", "SYNC grid", "z[") == []
    assert all(verify(k.kernel).is_proved for k in found)
    for word in ("FENCE proxy.async.global", "FENCE proxy.async", "WAIT_GROUP bulk.read", "SYNC"):
        refused, wrong = needless(found, word, 12)
        assert refused, word
        assert wrong == []

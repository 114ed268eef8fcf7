"""Rules of statements that wait and are waited for: a line that breaks one, with the message, and one that does not."""

import pytest

from tests.kir.refused import is_refused

# bad line, message, good line
SYNCHRONIZATION = [
    # synchronization
    ("SYNC block 64", "a block barrier of 64 threads in blocks of 128", "SYNC block 128"),
    ("SYNC warp 16", "a warp barrier of 16 threads: all 32 of a warp arrive, or all of a block that has fewer", "SYNC warp 32"),
    ("SYNC named 0, 64", "named barrier 0: ids are 1 to 15", "SYNC named 15, 64"),
    ("SYNC named 16, 64", "named barrier 16: ids are 1 to 15", "SYNC named threadIdx.y + 1, 64"),
    ("SYNC named 1, 48", "a named barrier of 48 threads: not a multiple of 32", "SYNC named 1, S"),
    ("INIT full[0] count 0", "an mbarrier counts 1 to 1048575 arrivals, not 0", "INIT full[0] count N"),
    ("EXPECT full[0] bytes 1048576", "an mbarrier expects at most 1048575 bytes, not 1048576", "EXPECT full[0] bytes 1048575"),
    (
        "p = CURSOR(slots 2, slot 0, parity 0)\nIF N > 3:\n  p = CURSOR(slots 4, slot 0, parity 0)",
        "the cursor 'p' runs over 4 slots here and over 2 elsewhere",
        "p = CURSOR(slots 2, slot 0, parity 0)\nIF N > 3:\n  p = CURSOR(slots 2, slot 1, parity 0)",
    ),
    ("r = CURSOR(slots 2, slot 0, parity 0)", "the cursor 'r' is already defined here", "p = CURSOR(slots 2, slot 0, parity 0)"),
    ("p = CURSOR(slots 0, slot 0, parity 0)", "a cursor over 0 slots; it needs at least 1", "p = CURSOR(slots 1, slot 0, parity 0)"),
    ("p = CURSOR(slots 2, slot 2, parity 0)", "a cursor at slot 2 with parity 0: slots are 0 to 1, parities 0 and 1", "p = CURSOR(slots 2, slot 1, parity 0)"),
    ("p = CURSOR(slots 2, slot 0, parity 2)", "a cursor at slot 0 with parity 2: slots are 0 to 1, parities 0 and 1", "p = CURSOR(slots 2, slot 0, parity 1)"),
    ("WAIT_GROUP wgmma.read <= 0", "wgmma has no wait_group of reads only", "WAIT_GROUP bulk.read <= 0"),
    ("WAIT_GROUP copy.read <= 0", "copy has no wait_group of reads only", "WAIT_GROUP copy <= 7"),
    ("WAIT_GROUP bulk <= 8", "a wait_group to 8 unfinished batches: 0 to 7 are possible", "WAIT_GROUP bulk <= 7"),
    ("SETMAXNREG 20", "setmaxnreg 20: multiples of 8 from 24 to 256 are possible", "SETMAXNREG 24"),
    ("SETMAXNREG 42", "setmaxnreg 42: multiples of 8 from 24 to 256 are possible", "SETMAXNREG 256"),
]


@pytest.mark.parametrize(("bad", "text", "good"), SYNCHRONIZATION, ids=[s[1][:40] for s in SYNCHRONIZATION])
def test_synchronization_rules(bad: str, text: str, good: str) -> None:
    is_refused(bad, text, good)

"""The table of a kernel's channels, as text."""

from taskfuse.ir.scalar import const
from taskfuse.kir.channel_table import ChannelRow, ChannelTable
from taskfuse.kir.declarations import Mbarrier

CHANNEL = ChannelRow("ch0", "ch0.full", "ch0.empty", 2, ("a", "b"), const(256), const(1), const(128), const(512), ("load",), ("math", "store"))


def test_rows() -> None:
    assert str(ChannelTable((CHANNEL,), (Mbarrier("order", 3),))).splitlines() == [
        "channel  slots  bytes/slot  buffers  full                         empty                producer  consumer",
        "ch0      2      256         a b      ch0.full count 1, 512 bytes  ch0.empty count 128  load      math store",
        "mbarriers of no channel: order[3]",
    ]


def test_no_channels() -> None:
    assert str(ChannelTable((), ())) == "no channels"

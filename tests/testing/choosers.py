"""Choosers without chance."""

from taskfuse.testing.chooser import Chooser


class Lowest(Chooser):
    """The simplest answer: the first of several, and nothing that is left to chance."""

    def integer(self, low: int, high: int) -> int:
        return low


class Highest(Chooser):
    """The other end: the last of several, and all that is left to chance."""

    def integer(self, low: int, high: int) -> int:
        return high

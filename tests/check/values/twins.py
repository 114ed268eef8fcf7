"""Pairs of kernels of nearly the same text, of which one computes what it says and the other does not."""

from taskfuse import Kernel, parse_kernel
from taskfuse.check import Layer, verify


def open_values(kernel: Kernel) -> str:
    """Why the values of a kernel are not proved; its order is."""
    certificate = verify(kernel)
    assert certificate.open_layers <= {Layer.VALUES, Layer.INSTANCE}, str(certificate)
    return "; ".join(o.reason for o in certificate.failures)


def twins(text: str, good: str, bad: str) -> tuple[Kernel, Kernel]:
    """A kernel, and one with a piece of text in place of another."""
    assert text.count(good) == 1, text
    return parse_kernel(text), parse_kernel(text.replace(good, bad))


def rejected(text: str, good: str, bad: str, reason: str) -> None:
    """One of the twins is proved, the other is not, and for what reason."""
    right, wrong = twins(text, good, bad)
    verify(right).require()
    assert reason in open_values(wrong)

"""Ops that other libraries have and taskfuse lacks: a call raises an error that names an alternative."""

from __future__ import annotations

from taskfuse.ops.registry import missing

__all__ = [
    "argwhere",
    "cholesky",
    "complex",
    "eigh",
    "fft",
    "inv",
    "masked_select",
    "polar",
    "qr",
    "solve",
    "stft",
    "svd",
    "unique",
    "unique_consecutive",
    "view_as_complex",
]

_SHAPE = "the shape of its result depends on data"
_FACTOR = "its steps depend on one another in an order that no reduction or scan has"
_COMPLEX = "no dtype is complex"
_BEFORE = "call the framework before the kernel"
_PAIRS = "hold real and imaginary parts in a last dimension of 2, as torch.view_as_real gives them"


unique = missing("unique", _SHAPE, _BEFORE)
unique_consecutive = missing("unique_consecutive", _SHAPE, "mark the first of each run with x[1:] != x[:-1]; their numbers are tf.cumsum of the marks")
masked_select = missing("masked_select", _SHAPE, "use tf.where, or tf.nonzero(mask, size) and tf.take: the size is stated")
argwhere = missing("argwhere", _SHAPE, "use tf.nonzero(x, size), which states it")
complex = missing("complex", _COMPLEX, _PAIRS)
polar = missing("polar", _COMPLEX, "stack r * tf.cos(angle) and r * tf.sin(angle) in a last dimension of 2")
view_as_complex = missing("view_as_complex", _COMPLEX, _PAIRS)
fft = missing("fft", _COMPLEX, "call the framework; a short transform is a product with a matrix of cosines and one of sines")
stft = missing("stft", _COMPLEX, "call the framework; tf.unfold makes the windows, products with cosines and sines the transform")
cholesky = missing("cholesky", _FACTOR, _BEFORE)
eigh = missing("eigh", _FACTOR, _BEFORE)
inv = missing("inv", _FACTOR, _BEFORE)
qr = missing("qr", _FACTOR, _BEFORE)
solve = missing("solve", _FACTOR, _BEFORE)
svd = missing("svd", _FACTOR, _BEFORE)

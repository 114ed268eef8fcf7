"""Copies are the identity only in dtypes that hold what is copied: one that computes in a narrower dtype is another function, in every form of copy."""

import pytest

import taskfuse as tf
from taskfuse.check import Verdict

FORMS = {
    "computed": ("b = copy(x[blockIdx.x, 0])  ~ value q[blockIdx.x, 0]", "add(b[0], 1)"),
    "read in its place": ("PASS", "add(x[blockIdx.x, 0], 1)"),
    "with zeros past the end": ("b[0] = pad(x[blockIdx.x, 0] if blockIdx.x < N, otherwise 0)  ~ value q[blockIdx.x, 0]", "add(b[0], 1)"),
    "as a vector": ("COPY b[0] <- x[blockIdx.x, 0] width 4  ~ value q[blockIdx.x, tile.0] tile (4)", "add(b[0], 1)"),
}


def verdict(form: str, function: str, dtype: str, n: str) -> Verdict:
    """Of a kernel that copies elements of a dtype, where the definition applies a function to them."""
    statement, used = FORMS[form]
    dim = "  DIM N min 1\n" if n == "N" else ""
    text = f"""\
KERNEL k(x: {dtype}[N, 4]) -> (y: {dtype}[N])
{dim}  GRID (N, 1, 1)  BLOCK (1, 1, 1)
  LOCAL b: {dtype}[4] align 16
  DEFINE q: {dtype}[N, 4] = {function}(x[i0, i1])
  DEFINE y: {dtype}[N] = add(q[i0, 0], 1)

{statement.replace("b =", "b[0] =")}
y[blockIdx.x] = {used}  ~ value y[blockIdx.x]
"""
    if n != "N":
        text = text.replace("[N", f"[{n}").replace("(N", f"({n}").replace("< N", f"< {n}")
    kernel = tf.parse_kernel(text)
    kernel.check_ir()
    return kernel.verify().verdict


@pytest.mark.parametrize("n", ["8", "N"])
@pytest.mark.parametrize("form", FORMS)
def test_narrower_copies_are_not_the_identity(form: str, n: str) -> None:
    for function in ("copy.int8", "copy.float32", "cast.int8"):
        assert verdict(form, function, "int32", n) is Verdict.REFUTED


@pytest.mark.parametrize("n", ["8", "N"])
@pytest.mark.parametrize("form", [f for f in FORMS if f != "read in its place"])
def test_others_are(form: str, n: str) -> None:
    assert verdict(form, "copy", "int32", n) is Verdict.PROVED
    if form != "computed":  # which says the dtype, too
        assert verdict(form, "copy.float32", "bfloat16", n) is Verdict.PROVED

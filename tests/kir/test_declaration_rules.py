"""Rules of declarations: a header that breaks one, with the message, and one that does not."""

import pytest

from taskfuse import dtypes
from taskfuse.errors import VerifyError
from taskfuse.kir import Kernel, parse_kernel, verify_kernel
from taskfuse.kir.declaration_rules import NO_NAME
from taskfuse.kir.declarations import Param, ScalarParam, TensorParam
from taskfuse.kir.kernel import ONE
from tests.kir.refused import DECLARATIONS, SIGNATURE, message

# what to replace in the header, the bad and the good replacement, message, line
HEADERS = [
    ("COUNTER done", "COUNTER full", "COUNTER other", "'full' is declared twice", "MBARRIER full[2]"),
    (
        "DIM N, S multiple_of 8",
        "DIM N, S min 5 max 4",
        "DIM N, S min 8 max 8 multiple_of 8",
        "no value of 'S' is at least 5, at most 4",
        None,
    ),
    ("DIM N, S", "DIM N, S max T", "DIM N, S max 2*N", "the bound of 'S' uses 'T', which is not an extent", None),
    ("DIM N, S", "DIM N max 2*S, S max N", "DIM N max 64, S max N", "the bound of 'N' depends on 'N'", None),
    ("b: float32[S]", "b: float32[T]", "b: float32[S + N]", "the shape of 'b' uses 'T', which is not an extent", None),
    ("GRID (N,", "GRID (i0,", "GRID (N//2,", "the launch shape uses 'i0', which is not an extent", None),
    ("BLOCK (32, 4", "BLOCK (32, -4", "BLOCK (32, 2", "the launch shape has the extent -4", None),
    ("BLOCK (32, 4", "BLOCK (32, 64", "BLOCK (32, 32", "a block has 2048 threads; at most 1024 are possible", None),
    ("BLOCK (32, 4, 1", "BLOCK (1, 1, 65", "BLOCK (1, 1, 64", "a block has 65 threads along z; at most 64 are possible", None),
    ("map_x = x", "map_x = w", "map_x = x", "tensor map 'map_x' is of 'w', which is not a tensor argument", None),
    ("map_x = x box (8, 64)", "map_x = x box (64)", "map_x = x box (1, 64)", "the box of 'map_x' has 1 axes, 'x' has 2", None),
    (
        "map_x = x box (8, 64)",
        "map_x = x box (512, 64)",
        "map_x = x box (256, 64)",
        "the box of 'map_x' has an axis of 512 elements; 1 to 256 are possible",
        None,
    ),
    (
        "map_x = x box (8, 64)",
        "map_x = x box (8, 12)",
        "map_x = x box (8, 16)",
        "the innermost axis of the box of 'map_x' has 24 bytes, not a multiple of 16",
        None,
    ),
    (
        "map_x = x box (8, 64)",
        "map_x = x box (8, 128)",
        "map_x = x box (8, 32)",
        "the innermost axis of the box of 'map_x' has 256 bytes, more than the swizzle span of 128",
        None,
    ),
    *(
        (
            "map_x = x box (8, 64)",
            f"map_x = x box (8, 64) step {step}",
            "map_x = x box (8, 64) step (8, 1)",
            f"the steps of 'map_x' are {step}: one for each axis, 1 to 8 and 1 along the innermost, are possible",
            None,
        )
        for step in ("(2, 2)", "(9, 1)", "(1, 2, 1)")
    ),
    (
        "map_x = x box (8, 64)",
        "map_x = x box (200, 64) step (2, 1)",
        "map_x = x box (128, 64) step (2, 1)",
        "the box of 'map_x' has an axis of 400 elements; 1 to 256 are possible",
        None,
    ),
    (
        "map_x = x box (8, 64) swizzle 128",
        "map_x = x box (8, 64) swizzle 48",
        "map_x = x box (8, 64) swizzle 0",
        "a swizzle of 48 bytes: 0, 32, 64 and 128 are possible",
        None,
    ),
    ("acc: float32[64]", "acc: float32[S]", "acc: float32[32]", "Local 'acc' has the extent S, which is not a constant", "LOCAL acc: float32[S]"),
    ("w: float32[N, S]", "w: float32[N, T]", "w: float32[N, N//2]", "the shape of 'w' uses 'T', which is not an extent", None),
    ("[S] align 16", "[S] align 2", "[S] align 4", "'f' has the alignment 2; it must be a power of two, at least the element's 4 bytes", None),
    ("[S] align 16", "[S] align 24", "[S] align 32", "'f' has the alignment 24; it must be a power of two, at least the element's 4 bytes", None),
    ("w: float32[N, S]", "w: float32[N, S] @ 0", "w: float32[N, S]", "'w' has an offset, which only a Shared buffer can have", None),
    ("[S] align 16", "[S] align 16 @ 8", "[S] align 16 @ 16", "the offset 8 of 'f' is not a multiple of its alignment 16", None),
    ("[S] align 16", "[S] align 16 @ N", "[S] align 16 @ 2*S", "the offset N of 'f' is not a multiple of its alignment 16", None),
    ("[S] align 16", "[S] align 16 @ -16", "[S] align 16 @ 0", "the offset -16 of 'f' is negative", None),
    ("[S] align 16", "[S] align 16 @ 16*T", "[S] align 16 @ 16*N", "the offset of 'f' uses 'T', which is not an extent", None),
    ("full[2]", "full[0]", "full[1]", "mbarrier 'full' has 0 slots; it needs at least 1", "MBARRIER full[0]"),
]


@pytest.mark.parametrize(("place", "bad", "good", "text", "line"), HEADERS, ids=[h[3][:40] for h in HEADERS])
def test_declaration_rules(place: str, bad: str, good: str, text: str, line: str | None) -> None:
    header = SIGNATURE + DECLARATIONS
    assert place in header
    found, under = message(parse_kernel(header.replace(place, bad)))
    assert found == text
    assert line is None or under == line
    verify_kernel(parse_kernel(header.replace(place, good)))


def test_tma_has_five_axes_at_most() -> None:
    header = "KERNEL k(x: float32[N, N, N, N, {0}]) -> ()\n  DIM N\n  TENSORMAP m = x box (1, 1, 1, 1, {1}) swizzle 0\n  GRID (1, 1, 1)  BLOCK (32, 1, 1)"
    assert message(parse_kernel(header.format("N, N", "1, 4")))[0] == "the box of 'm' has 6 axes; 1 to 5 are possible"
    verify_kernel(parse_kernel(header.format("N", "4")))


def empty(*params: Param) -> Kernel:
    """A kernel with some parameters that does nothing."""
    return Kernel("k", (), params, ONE, ONE, (), (), (), ())


def test_names_that_cannot_be_read_back() -> None:
    def named(name: str) -> Kernel:
        return empty(ScalarParam(name, dtypes.float32))

    for bad in ("a b", "2d", "", "SYNC", "min", "threadIdx.x"):
        text = NO_NAME.format(bad)
        assert message(named(bad))[0] == text
    verify_kernel(named("grid.x"))


def test_params_are_in_order() -> None:
    x, y = TensorParam("x", dtypes.float32, (), is_output=False), TensorParam("y", dtypes.float32, (), is_output=True)
    text = "'x' is out of order: inputs and scalars come first, then outputs, then tensor maps"
    assert message(empty(y, x))[0] == text
    verify_kernel(empty(x, y))


def test_integers_are_extents() -> None:
    text = "KERNEL k(n: integer{more}) -> (y: float32[4])\n  DIM n\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)"
    parse_kernel(text.format(more="")).check_ir()
    for more, said in ((", m: integer", "integer 'm' is not an extent: declare it with DIM"), (", n: integer", "integer 'n' is given twice")):
        with pytest.raises(VerifyError, match=said):
            verify_kernel(parse_kernel(text.format(more=more)))

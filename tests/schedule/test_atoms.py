"""set_atom: which axes an instruction may execute, and that what is refused changes nothing."""

from collections.abc import Callable

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse import atoms
from taskfuse.errors import ScheduleError
from tests.schedule.points import pair, refused


def copied(*shape: int | str, dtype: tf.DType = tf.float32) -> tf.TensorView:
    """A copy of an input."""
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor(list(shape), dtype=dtype)
        fusion.add_output(tf.neg(x))
    return x.cache_after()


def test_an_atom_binds_its_axes_and_gives_them_back() -> None:
    a = copied(8, 4)
    a.set_atom(atoms.VECTOR, [-1])
    assert (a.schedule.atom, a.schedule.atom_axes) == (atoms.VECTOR, (a.loop[1],))
    assert a.schedule.ptype(a.loop[1]) is P.Vectorize
    a.set_atom(atoms.VECTOR, [1])  # again, the same
    a.set_atom(atoms.SCALAR, ())
    assert a.schedule.atom is None
    assert a.schedule.ptype(a.loop[1]) is P.Serial
    a.set_atom(atoms.CP_ASYNC, [1])
    assert a.schedule.atom is atoms.CP_ASYNC


REFUSED: dict[str, tuple[Callable[[tf.TensorView], object], str]] = {
    "two axes of one": (lambda a: a.set_atom(atoms.VECTOR, [0, 1]), "the atom vector covers 1 axes, not 2"),
    "none of one to five": (lambda a: a.set_atom(atoms.TMA_LOAD, []), "the atom tma_load covers 1 to 5 axes, not 0"),
    "not the last": (
        lambda a: a.set_atom(atoms.VECTOR, [0]),
        "axis 0 (extent 8) is not the last loop axis: the atom vector executes the innermost axes\nhelp: tv2.reorder moves it",
    ),
    "bound": (
        lambda a: (a.axis(1).parallelize(P.TIDx), a.set_atom(atoms.VECTOR, [1])),
        "axis 1 (extent 4) is bound to TIDx already\nhelp: bind it to Serial first",
    ),
    "another atom": (
        lambda a: (a.set_atom(atoms.VECTOR, [1]), a.set_atom(atoms.CP_ASYNC, [1])),
        "tv2 has the atom vector already\nhelp: tv2.set_atom(tf.atoms.SCALAR, ()) removes it",
    ),
    "shared": (
        lambda a: (a.inline_at(2), a.set_atom(atoms.VECTOR, [1])),
        "axis 1 (extent 4) is a loop that inlining shares, and an atom's axes are not loops\nhelp: inline less deep",
    ),
    "a tile of another size": (
        lambda a: a.set_atom(atoms.STMATRIX_X4, [0, 1]),
        "axis 0 (extent 8) is not the 16 of the atom stmatrix_x4\nhelp: split it by 16",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    call, text = REFUSED[name]
    a = copied(8, 4)
    with pytest.raises(ScheduleError) as caught:
        call(a)
    said = "\n".join([caught.value.message, *([f"help: {caught.value.help}"] if caught.value.help else [])])
    assert said == f"set_atom(tv2): {text}"


@pytest.mark.parametrize("extent", [3, 6, "N"])
def test_vectors_are_powers_of_two(extent: int | str) -> None:
    a = copied(8, extent)
    text = f"axis 1 (extent {extent}) has no constant power-of-two extent, which the atom vector needs\nhelp: split it by a constant such as 4"
    assert refused(lambda: a.set_atom(atoms.VECTOR, [1]), a.fusion) == f"set_atom(tv2): {text}"


def test_what_computes_is_no_copy() -> None:
    _, a, _ = pair(8, 4)
    text = "the atom vector copies, but the definition of tv1 computes\nhelp: give a copy the atom: tv1.cache_before() or cache_after() makes one"
    assert refused(lambda: a.set_atom(atoms.VECTOR, [1]), a.fusion) == f"set_atom(tv1): {text}"


@pytest.mark.parametrize(("dtype", "most"), [(tf.float32, 4), (tf.bfloat16, 8), (tf.int8, 16), (tf.float64, 2)])
def test_an_access_of_16_bytes_at_most(dtype: tf.DType, most: int) -> None:
    copied(8, most, dtype=dtype).set_atom(atoms.VECTOR, [1])
    with pytest.raises(ScheduleError, match=f"{2 * most} elements of {dtype.name} are more than the 16 bytes of the atom vector"):
        copied(8, 2 * most, dtype=dtype).set_atom(atoms.VECTOR, [1])


def test_asynchronous_copies_are_of_4_bytes_at_least() -> None:
    copied(8, 2, dtype=tf.bfloat16).set_atom(atoms.CP_ASYNC, [1])
    with pytest.raises(ScheduleError, match="1 element of bfloat16 are less than the 4 bytes of the atom cp_async"):
        copied(8, 2, dtype=tf.bfloat16).set_atom(atoms.CP_ASYNC, [])


def test_tensor_cores_reduce_products_along_their_last_axis() -> None:
    with tf.Fusion("f") as fusion:
        a, b = tf.define_tensor([16, 16], dtype=tf.bfloat16), tf.define_tensor([8, 16], dtype=tf.bfloat16)
        d = tf.matmul(a, b.T, dtype=tf.float32)
        s = tf.max(tf.expand_dims(a, 1) * b, 2)
        fusion.add_output(d)
        fusion.add_output(tf.neg(s))
    mma = atoms.mma(16, 8, 16)
    assert refused(lambda: d.set_atom(mma, (0, 1, 2)), fusion) == (
        "set_atom(tv3): an output: the atom mma_m16n8k16 leaves its result in registers\nhelp: let a copy have it: tv3.cache_before()"
    )
    d = d.cache_before()
    d.set_atom(mma, (0, 1, 2))
    assert d.schedule.allocation is not None  # spread over the lanes
    assert refused(lambda: s.set_atom(mma, (0, 1, 2)), fusion).endswith(
        "the atom mma_m16n8k16 computes a reduction by add of mul, but its definition is not one"
    )


@pytest.mark.parametrize(("dtype", "sums"), [(tf.int8, tf.float32), (tf.bfloat16, tf.float64)])
def test_sums_have_the_dtype_of_the_instruction(dtype: tf.DType, sums: tf.DType) -> None:
    k = 32 // dtype.itemsize
    with tf.Fusion("product") as fusion:
        a, b = tf.define_tensor([64, k], dtype=dtype), tf.define_tensor([8, k], dtype=dtype)
        out = tf.matmul(a, b.T, dtype=sums)
        fusion.add_output(out)
    right = tf.int32 if dtype is tf.int8 else tf.float32
    with pytest.raises(ScheduleError, match=f"adds products of {dtype} and {dtype} up in {right}, but {out.name} is {sums}") as caught:
        out.set_atom(atoms.wgmma(64, 8, k), (0, 1, 2))
    assert caught.value.help == f"give the sum that dtype, as tf.matmul(..., dtype=tf.{right}) does, and convert the result"

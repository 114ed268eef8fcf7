"""resident_blocks: how many blocks a multiprocessor holds, from the fusion to the launch bounds."""

import pytest

import taskfuse as tf
from taskfuse.errors import FusionError, ParseError, VerifyError
from tests.errors import text


def fusion(count: int) -> tf.Fusion:
    with tf.Fusion("f") as found:
        x = tf.define_tensor([64], name="x")
        y = tf.exp(x)
        found.add_output(y)
    y.axis(0).parallelize(tf.ParallelType.TIDx)
    found.resident_blocks(count)
    return found


def test_the_launch_bounds_say_it() -> None:
    kernel = tf.lower(fusion(12))
    assert "__launch_bounds__(64, 12)" in kernel.cuda_source()
    assert "__launch_bounds__(64, 1)" in tf.lower(fusion(1)).cuda_source()
    assert kernel.verify().verdict.value == "proved"


def test_texts_read_back() -> None:
    plain, found = fusion(1), fusion(12)
    assert "RESIDENT" not in str(plain) + str(tf.lower(plain))
    assert tf.parse_fusion(str(found)).residents == 12
    kernel = tf.lower(found)
    assert "BLOCK (64, 1, 1)  RESIDENT 12\n" in str(kernel)
    assert tf.parse_kernel(str(kernel)) == kernel
    assert kernel != tf.lower(plain)
    assert tf.copy_fusion(found)[0].residents == 12


@pytest.mark.parametrize("count", [0, 33])
def test_refusals(count: int) -> None:
    with pytest.raises(FusionError) as caught:
        fusion(count)
    assert text(caught.value) == f"fusion 'f': {count} resident blocks of a multiprocessor\nhelp: use 1 to 32"
    with pytest.raises(FusionError, match=f"{count} resident blocks of a multiprocessor"):
        tf.parse_fusion(str(fusion(12)).replace("RESIDENT 12", f"RESIDENT {count}"))
    wrong = tf.parse_kernel(str(tf.lower(fusion(12))).replace("RESIDENT 12", f"RESIDENT {count}"))
    with pytest.raises(VerifyError, match=f"{count} resident blocks of a multiprocessor; 1 to 32 are possible"):
        wrong.check_ir()


def test_one_line() -> None:
    with pytest.raises(ParseError, match="there is a RESIDENT line already"):
        tf.parse_fusion(str(fusion(12)) + "\nRESIDENT 3\n")

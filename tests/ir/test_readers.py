"""Text, picture and reference as methods of a fusion."""

import pickle
from pathlib import Path

import numpy as np

import taskfuse as tf
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.parser import parse_fusion
from taskfuse.ir.picture import fusion_picture
from taskfuse.ir.printer import fusion_to_text
from taskfuse.ir.values import MODULAR


def test_the_methods_are_the_functions(tmp_path: Path) -> None:
    with tf.Fusion("f") as fusion:
        fusion.add_output(tf.define_tensor([3], "int8") * 2)
    assert str(fusion) == fusion_to_text(fusion)
    assert str(pickle.loads(pickle.dumps(fusion))) == str(parse_fusion(str(fusion))) == str(fusion)
    fusion.draw(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == fusion_picture(fusion)
    x = np.array([1, 64, -128], np.int8)
    assert fusion.evaluate(x)[0].tolist() == evaluate(fusion, [x])[0].tolist() == [2, -128, 0]
    assert fusion.evaluate(x, values=MODULAR)[0].tolist() == evaluate(fusion, [x], MODULAR)[0].tolist()

"""`import taskfuse` brings what it needs and no more."""

import subprocess
import sys

SCRIPT = """
import sys
import taskfuse
loaded = {name.partition(".")[0] for name in sys.modules}
print(sorted(loaded & {"cuda", "torch", "cupy", "networkx", "hypothesis", "argparse", "subprocess"}))
"""


def test_nothing_of_cuda_is_imported_before_it_is_needed() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


COMPILED = """
import sys
import numpy as np
import taskfuse as tf
with tf.Fusion("f") as fusion:
    fusion.add_output(tf.sin(tf.define_tensor([8])).sum(0))
tf.compile(fusion, backend="sim", cache=False)(np.ones(8, np.float32))
print("networkx" in sys.modules)
fusion.graph()
print("networkx" in sys.modules)
"""


def test_networkx_is_imported_by_who_asks_for_a_graph() -> None:
    run = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]

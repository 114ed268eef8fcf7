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

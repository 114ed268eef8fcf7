"""``python -m taskfuse``: see :mod:`taskfuse.cli`."""

import sys

from taskfuse.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

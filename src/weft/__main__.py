"""``python -m weft``: the command ``weft``, for an environment whose scripts are not on the PATH."""

from __future__ import annotations

import sys

from weft.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

"""What the scripts that draw have in common."""

import sys
from typing import Any

__all__ = ["pyplot"]


def pyplot() -> Any:
    """Matplotlib's pyplot, drawing to files; without Matplotlib the program ends with one sentence."""
    try:
        import matplotlib

        matplotlib.use("agg")  # no window
        import matplotlib.pyplot
    except ImportError:
        sys.exit("drawing needs Matplotlib; install it with: pip install -c constraints.txt -e '.[plot]'")
    return matplotlib.pyplot

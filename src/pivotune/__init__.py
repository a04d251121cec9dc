"""pivotune: find the turns of agent traces that matter, train only there, measure what it cost.

Importing the package loads no torch; `pivotune.models` and `pivotune.train` do.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("pivotune")
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0+source"

__all__ = ["__version__"]

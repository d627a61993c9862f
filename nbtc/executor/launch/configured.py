"""A kernel with its launch configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Configured:
    """A kernel with its launch configuration, to be called with the arguments."""

    def __init__(self, launch: Callable[..., Any], grid: Any, block: Any = None, **options: Any) -> None:
        self._launch, self._grid, self._block, self._options = launch, grid, block, options

    def __call__(self, *args: Any) -> Any:
        """Launch; a `Profile` for `k.profile`, else None."""
        return self._launch(self._grid, self._block, args, **self._options)

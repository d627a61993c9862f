"""What the interface to another tool says when the tool is not installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from nbtc.errors import MissingExtraError


def need(package: str, extra: str) -> None:
    """Raise MissingExtraError, with the command that installs it, where `package` cannot be imported."""
    blocked = package in sys.modules and sys.modules[package] is None  # how Python marks what may not be imported
    if blocked or (package not in sys.modules and find_spec(package) is None):
        raise MissingExtraError(
            f"nbtc.{extra} needs the package {package}, which is not installed: pip install 'nbtc[{extra}]'",
            name=package,
        )

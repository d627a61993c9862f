"""Addresses of the driver's exported functions, which clients ask for by name."""

from __future__ import annotations

import ctypes
import os
from functools import cache

from nbtc.libcuda.rows import SONAMES

folder = ""  # where the library lies that attached itself


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(os.path.join(folder, SONAMES["driver"]))


def exported(name: str) -> int | None:
    """The address of a function of the driver's library, or None."""
    found = getattr(_library(), name, None)
    return None if found is None else ctypes.cast(found, ctypes.c_void_p).value

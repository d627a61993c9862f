"""The compilers' own libraries, as they are installed: in Python packages, a CUDA toolkit, the loader's path."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from glob import glob

from nbtc.libcuda import attach_points
from nbtc.libcuda.errors import say
from nbtc.libcuda.rows import SONAMES

INTERNAL_ERROR = {"nvrtc": 11, "nvjitlink": 6}  # NVRTC_ERROR_INTERNAL_ERROR, NVJITLINK_ERROR_INTERNAL
PACKAGE = {"nvrtc": "nvidia-cuda-nvrtc", "nvjitlink": "nvidia-nvjitlink"}


def _folders() -> Iterator[str]:
    for folder in sys.path:
        yield from glob(os.path.join(folder, "nvidia", "*", "lib"))
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), *sorted(glob("/usr/local/cuda*"))):
        if home:
            yield os.path.join(home, "lib64")
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if os.path.isabs(folder) and folder != attach_points.folder:
            yield folder
    yield "/usr/lib/x86_64-linux-gnu"


@cache
def real(which: str) -> ctypes.CDLL | None:
    """A compiler's library, or None, which is said."""
    for folder in _folders():
        path = os.path.join(folder, SONAMES[which])
        if os.path.isfile(path):
            return ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    plain = re.sub(r"\.so.*", "", SONAMES[which]).removeprefix("lib")
    say(f"{plain} isn't installed: pip install '{PACKAGE[which]}>=13'", once=True)
    return None

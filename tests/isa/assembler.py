"""ptxas, where one is installed: on the PATH, or by the wheel nvidia-cuda-nvcc."""

import importlib.util
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest


def _found():
    on_path = shutil.which("ptxas")
    if on_path:
        return Path(on_path)
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    return next((p for root in roots for p in sorted(Path(root).glob("*/bin/ptxas*"))), None)


PTXAS = _found()
needs_ptxas = pytest.mark.skipif(PTXAS is None, reason="no ptxas: neither on the PATH nor from nvidia-cuda-nvcc")


def known(text):
    """A module as a ptxas that is older than its `.version` takes it: where no instruction is newer, either does."""
    newest = re.search(r"current version is '([\d.]+)'", refusal(text, "sm_80"))
    return text if newest is None else re.sub(r"(?m)^\.version \S+", f".version {newest[1]}", text, count=1)


def refusal(text, target):
    """What ptxas says of a module when it refuses it; "" when it takes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "k.ptx"
        path.write_text(text)
        command = [str(PTXAS), f"-arch={target}", "-O0", str(path), "-o", str(path.with_suffix(".cubin"))]
        done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode else ""

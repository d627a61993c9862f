"""Shell scripts in place of ptxas and nvcc, for programs that start these to get machine code: they give PTX."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

# Triton reads "release 13.0" of what --version says, to choose the PTX that it writes.
PTXAS = """#!/bin/sh
# nbtc in place of ptxas: the PTX itself, where machine code is asked for
out= in= before=
for word; do
  case "$before" in -o|--output-file) out=$word;; esac
  case "$word" in
    -V|--version) echo "nbtc in place of ptxas, release 13.0, V13.0.0"; exit 0;;
    *.ptx) in=$word;;
  esac
  before=$word
done
[ -n "$in" ] && [ -n "$out" ] || { echo "nbtc in place of ptxas: pass FILE.ptx -o FILE" >&2; exit 1; }
exec cp -- "$in" "$out"
"""
NVCC = """#!/bin/sh
# nbtc in place of nvcc: PTX where machine code (--cubin) is asked for, and nvcc itself, the next on the PATH
here=$(dirname -- "$(readlink -f -- "$0")")
rest=$(printf '%s' "$PATH" | tr ':' '\\n' | grep -Fvx -- "$here" | tr '\\n' ':')
real=$(PATH=$rest command -v nvcc) || { echo "nbtc run: there is no nvcc" >&2; exit 127; }
cubin= out= source=
count=$#
while [ "$count" -gt 0 ]; do
  word=$1; shift; count=$((count - 1))
  case "$word" in
    --cubin|-cubin) word=--ptx cubin=1;;
    -o*|--output-file*) out=1;;
    *.cu) source=$word;;
    # PyCUDA keeps what it compiled by what this says: not a GPU's machine code as PTX, nor PTX for a GPU
    --version|-V) "$real" --version && echo "nbtc in place of nvcc: PTX where machine code is asked for"; exit;;
  esac
  set -- "$@" "$word"
done
# what nvcc calls its output where nobody names it
[ -z "$cubin" ] || [ -n "$out" ] || [ -z "$source" ] || set -- "$@" -o "$(basename -- "$source" .cu).cubin"
exec "$real" "$@"
"""


def write(folder: Path) -> Path:
    """The folder with the scripts, beside the libraries."""
    place = folder / "bin"
    for name, text in (("ptxas", PTXAS), ("nvcc", NVCC)):
        if not (place / name).is_file():
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=place, delete=False, encoding="ascii") as file:
                file.write(text)
            os.chmod(file.name, 0o755)
            os.replace(file.name, place / name)
    return place

"""Fail when a kernel kept in a folder of Numba's cache has an instruction that LLVM is known to encode wrongly.

python scripts/kernels_code.py FOLDER

Programs are looked through when they are compiled (`nbtc.compiler.machine_code.masked_logic`); kernels that Numba
compiles are not, since none has had such an instruction: this sees that it stays so.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nbtc.compiler.machine_code.masked_logic import may_hold


def main() -> None:
    kept = sorted(Path(sys.argv[1]).rglob("*.nbc"))
    found = [path.name for path in kept if may_hold(path.read_bytes())]
    if found or not kept:
        sys.exit("\n".join(["VPTERNLOG with a merging mask and memory:", *found]) if found else "no kernels there")
    print(f"{len(kept)} compiled kernels, none with VPTERNLOG that merges by a mask and reads memory")


if __name__ == "__main__":
    main()

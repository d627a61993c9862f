"""Fail when a tracked file names a place that exists on one machine only, or a package registry's host.

Also when a file's own name is not printable ASCII (a test's leftover), or the recordings are too large for a checkout.

python scripts/hygiene.py
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
# assembled from parts, so that this file passes its own check
PLACES = "/(" + "|".join(("work", "farm", "tmp", "root", "home", "opt/nv")) + ")/"
HOSTS = "|".join((r"pypi\.(org|python)", r"files\.python" + "hosted", r"registry\.npm" + "js", r"index-u" + "rl"))
GOLDEN = 8 << 20  # bytes of tests/golden: what a checkout and an sdist may carry
BINARY = {".npz", ".npy", ".xz", ".png", ".svg"}


def tracked() -> list[Path]:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=TREE, capture_output=True, text=True, check=True).stdout
    return [TREE / name for name in names.split("\0") if name]


def main() -> None:
    pattern = re.compile(rf"(?<![\w.]){PLACES}|{HOSTS}")
    found = [
        f"{path.relative_to(TREE)}:{number}: {line.strip()[:120]}"
        for path in tracked()
        if path.suffix not in BINARY and path.is_file()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    strange = [repr(path.name) for path in tracked() if not re.fullmatch(r"[!-~]+", path.name)]
    if strange:
        sys.exit("names of files that are not printable ASCII: " + ", ".join(strange))
    size = sum(
        path.stat().st_size for path in tracked() if path.is_relative_to(TREE / "tests/golden") and path.is_file()
    )
    if size > GOLDEN:
        sys.exit(f"tests/golden has {size:,} bytes, {size - GOLDEN:,} more than a checkout may carry")
    if found:
        sys.exit("places of one machine, or registry hosts:\n" + "\n".join(found))
    print("no place of one machine, no registry host")


if __name__ == "__main__":
    main()

"""Check that every documented name has a type that all checkers agree on.

    pip install pyright && python scripts/public_types.py

`pyright --verifytypes` takes each module of a package for a public one unless its name begins with an underscore: its
score is of the whole house.  Here it is of what `nbtc.__all__` has and of the modules that are named there, with all
that their names lead to.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import nbtc

MODULES = ("accuracy", "check", "cuda", "cute.emulated", "report")  # public beside those of `nbtc.__all__`


def public(name: str, modules: tuple[str, ...], defined: list[str]) -> bool:
    """Whether users meet a symbol."""
    return name.startswith(modules) or any(name == x or name.startswith(f"{x}.") for x in defined)


def main() -> None:
    command = ["pyright", "--pythonpath", sys.executable, "--verifytypes", "nbtc", "--ignoreexternal", "--outputjson"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)  # it fails below 100 % of the house
    symbols: list[dict[str, Any]] = json.loads(run.stdout)["typeCompleteness"]["symbols"]
    modules = tuple(f"nbtc.{name}." for name in (*nbtc._MODULES, *MODULES) if name != "examples")
    defined = [f"{module}.{name}" for module, names in nbtc._EXPORTS.items() for name in names.split()]
    met = [x for x in symbols if x["isExported"] and public(x["name"], modules, defined)]
    unknown = [x["name"] for x in met if not x["isTypeKnown"] or x["isTypeAmbiguous"]]
    print(*unknown, f"{len(met) - len(unknown)} of {len(met)} public names have a known type", sep="\n")
    sys.exit(bool(unknown) or not met)


if __name__ == "__main__":
    main()

"""Time the loops of large products, and what single operations cost beside multiply-adds, for docs/bounds.md.

    python scripts/kernel_cycles.py [--out benchmarks/cycles.json]
    python scripts/readme.py

Needs a processor with AVX2, or with AVX-512's dot products and counts of bits.  One thread, half a minute; times are a
processor's, the shortest of many, so that other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import llvmlite

from nbtc.testing import kernel_cycles

OUT = Path(__file__).resolve().parents[1] / "benchmarks" / "cycles.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT)
    out, cpu = parser.parse_args().out, kernel_cycles.processor_name()
    if cpu is None:
        parser.error("this processor has neither AVX2 nor AVX-512's dot products: run it on one that has them")
    bits = kernel_cycles.registers().bits
    found: dict[str, Any] = {
        "cpu": cpu, "bits": bits, "llvmlite": llvmlite.__version__, "operations": {}, "kernels": {},
    }  # fmt: skip
    found["multiply_add_ns"] = round(kernel_cycles.multiply_add_seconds() * 1e9, 4)
    print(f"a multiply-add of {bits} bits takes {found['multiply_add_ns']} ns")
    for name in kernel_cycles.registers().operations:
        found["operations"][name] = cost = round(kernel_cycles.cost_of(name), 2)
        print(f"{name:<32}{cost:>6.2f}", flush=True)
    for name in (*kernel_cycles.FLOATS, *kernel_cycles.INTEGERS):
        cycles = kernel_cycles.cycles(name)
        found["kernels"][name] = {key: round(value, 2) for key, value in cycles._asdict().items()}
        print(f"{name:<32}{cycles.took:>6.1f} of {cycles.bound:.1f} ({cycles.bound / cycles.took:.0%})", flush=True)
    out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""All names of all exact scalar rows against Python integers.

    python tests/tools/scalar_soak.py [--count 10000] [--seed 0] [--lanes 32] [OPCODE ...]

Inputs a row: `--count` in all, shared by the row's names (at least 64 each).  Exit code 1 when a bit differs.
"""

import argparse
import sys
import time
from itertools import groupby
from pathlib import Path

import numpy as np

from nbtc.executor.rows import forms
from nbtc.testing.scalar_inputs import cases

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # where `tests` is

from tests.reference.scalar_check import differences


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("opcodes", nargs="*")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lanes", type=int, default=32, help="32, or 1 for scalars")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    spelled = (f for table in forms.TABLES for f in table if "%" not in f.opcode)
    exact = sorted((f for f in spelled if not f.evidence), key=lambda f: f.opcode)
    wrong = 0
    for opcode, rows in groupby(exact, key=lambda f: f.opcode):
        if args.opcodes and opcode not in args.opcodes:
            continue
        start, names, inputs = time.perf_counter(), 0, 0
        for form in rows:
            texts = list(cases(form, rng))
            count = max(64, -(-args.count // len(texts) // 32) * 32)
            names, inputs = names + len(texts), inputs + count * len(texts)
            for difference in differences(texts, rng, count, None if args.lanes == 1 else args.lanes):
                wrong += 1
                print(f"  {difference}", flush=True)
        print(f"{opcode}: {names} names, {inputs} inputs, {time.perf_counter() - start:.1f} s", flush=True)
    print(f"{wrong} names with a wrong bit")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

"""Random structured programs on the machine and on an interpreter of single threads.

    python tests/tools/program_soak.py [--first 0] [--count 2000]

Exit code 1 when they differ anywhere; the text of such a program is `nbtc.testing.programs.random_program(seed).text`.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import nbtc
from nbtc.testing.programs import random_program

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # where `tests` is

from tests.reference import interpreter


def differs(seed: int) -> bool:
    """Whether machine and interpreter give different words for a seed's program, or one of them fails."""
    program = random_program(seed)
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 1 << 32, program.words, dtype=np.uint64).astype(np.uint32)
    array = np.where(rng.random(program.words) < 0.5, words % 50, words).astype(np.uint32)
    expected = interpreter.run(program.text, "k", program.grid, program.block, array)
    try:
        nbtc.load(program.text)["k"][program.grid, program.block](array)
    except Exception as error:
        print(f"seed {seed}: {error}", flush=True)
        return True
    wrong = int((array != expected).sum())
    if wrong:
        print(f"seed {seed}: {wrong} of {array.size} words differ", flush=True)
    return wrong > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=2000)
    args = parser.parse_args()
    start = time.perf_counter()
    bad = 0
    for done in range(args.count):
        bad += differs(args.first + done)
        if done % 100 == 99:
            print(f"{done + 1} programs, {bad} bad, {time.perf_counter() - start:.0f} s", flush=True)
    print(f"{args.count} programs, {bad} bad")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())

"""What calls, launches and copies of nbtc's CUDA driver cost, measured from C (driver_speed.c).

    python scripts/driver_speed.py [PROGRAM ...]

Needs gcc.  Microseconds for one, the best of seven rounds, beside other load; a copy beside memcpy's in the same
process.  A program, such as an executable of `nvcc -cudart shared`, is run under `nbtc run` and timed from start to
end, the second time, with a warm cache.
"""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


def built(folder: Path) -> Path:
    """The executable, linked with functions that do nothing: nbtc's libraries take their places when it runs."""
    names = set(re.findall(r"\b(cu(?:da)?[A-Z]\w+)\(", SOURCE.read_text()))
    stubs, library, program = folder / "stubs.c", folder / "libcuda.so.1", folder / "driver_speed"
    stubs.write_text("".join(f"int {name}(void) {{ return 999; }}\n" for name in sorted(names)))
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, stubs], check=True)
    subprocess.run(["gcc", "-O2", "-Wall", "-o", program, SOURCE, library, "-lpthread"], check=True)
    return program


def timed(command: list[str]) -> float:
    """Seconds of a program from start to end."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    run = [sys.executable, "-m", "nbtc", "run"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*run, built(Path(folder))], check=True)
    for program in sys.argv[1:]:
        timed([*run, program])
        print(f"nbtc run {program}, s {min(timed([*run, program]) for _ in range(3)):.2f}")


if __name__ == "__main__":
    main()

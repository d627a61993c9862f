"""Records overlaps.npz on a GPU whose fp8 products are f16 ones: python make_overlaps.py FOLDER.

From the repository's root; it needs the driver alone.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path.cwd()))
from nbtc.verify.hardware.trial import Gpu
from nbtc.verify.text import ENTRY
from tests.executor.matrix.test_overlaps import CASES, LANES, registers, text

gpu, found = Gpu(), {}
for case, (_, d, *_) in CASES.items():
    found[case] = np.zeros((len(d), LANES), np.uint32)
    body = text(case)
    gpu.run(body[body.index(".visible") :].replace(" k(", f" {ENTRY}("), 1, LANES, 0, [registers()], [found[case]])
np.savez_compressed(Path(sys.argv[1]) / "overlaps.npz", **found)
print(gpu.name, gpu.driver_version, len(found), "results")

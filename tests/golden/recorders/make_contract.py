"""What a GPU makes of quotients before sums: python make_contract.py, on an H200, with CuPy; one kernel a sum."""

import sys
import tempfile
from pathlib import Path

import cupy
import numpy as np

HERE = Path(__file__).parents[1]
sys.path.insert(0, str(HERE.parents[1]))
from tests.executor.kernel.test_contract_quotients import FUNCTIONS, SUMS, text  # noqa: E402

with np.load(HERE / "contract_quotients.npz") as old:
    found = {name: old[name] for name in "abc"}
for function in FUNCTIONS:
    rows = []
    for name in SUMS:
        path = Path(tempfile.gettempdir()) / "kernel.ptx"
        path.write_text(text(function, [name]))
        out = cupy.zeros(64, cupy.uint32)
        kernel = cupy.RawModule(path=str(path)).get_function("k")
        kernel((1,), (64,), (*(cupy.asarray(found[x]) for x in "abc"), out))
        rows.append(cupy.asnumpy(out))
    found[function] = np.stack(rows)
np.savez_compressed(HERE / "contract_quotients.npz", **found)

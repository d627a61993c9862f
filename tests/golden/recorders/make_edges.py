"""Records edges.npz on a GPU: python make_edges.py FOLDER, from the repository's root; needs torch for memory there.

Words that tensor maps of type tf32 load, min and max of zeros in atomics, tests of an mbarrier that expects nobody.
Every text is loaded by itself (a loader that remembers modules by their file's name once gave one program's results
for all).
"""

import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path.cwd()))
import nbtc
from nbtc import driver
from tests.executor.edges import LOADED, PAIRS, TF32_LOAD, reductions, tf32_words, waits


def on_gpu(x):
    """A copy of a uint32 array on the GPU, at a multiple of 256 bytes."""
    return torch.from_numpy(x.view(np.int32).copy()).cuda()


def run(text, arrays, block):
    """What the last array holds after a launch."""
    given = [on_gpu(x) for x in arrays]
    driver.launch(text, "k", 1, block, 0, None, given)
    driver.synchronize()
    return given[-1].cpu().numpy().view(np.uint32)


found = {name: run(text, arrays, len(PAIRS)) for name, text, arrays in reductions()}
found |= {name: run(text, arrays, 1) for name, text, arrays in waits()}
for dtype in ("tf32", "tf32_ftz"):
    words = on_gpu(tf32_words())
    out = torch.zeros_like(words)
    tile = nbtc.TensorMap(words.view(torch.float32), (LOADED, 1), dtype=dtype)
    driver.launch(TF32_LOAD, "k", words.shape[0], 1, 0, None, [tile, out])
    driver.synchronize()
    found[dtype] = out.cpu().numpy().view(np.uint32)
np.savez_compressed(Path(sys.argv[1]) / "edges.npz", gpu=torch.cuda.get_device_name(), **found)
print(torch.cuda.get_device_name(), len(found), "results")

"""Cut the committed library_orders.npz out of a full recording: make_orders.py GEMM_NPZ."""

import sys
from pathlib import Path

import numpy as np

PLAIN = {
    ("f16_nn", "48x80x48"),
    ("bf16_f32out", "48x80x48"),
    ("s8_nt", "48x80x48"),
    ("e4m3e4m3_f16_fast", "48x80x48"),
    ("e4m3e4m3_f32_slow", "32x32x512"),
    ("e5m2e4m3_bf16_slow", "32x32x512"),
    ("f64_nn", "33x65x136"),
}

with np.load(sys.argv[1]) as z:
    kept = {}
    for key in z.files:
        tag, shape, what = key.split("__") if key.endswith("__order") else ("", "", "")
        if what and (str(z[key]) not in ("seq", "promo4") or (tag, shape) in PLAIN):
            kind = tag.split("_")[0]
            names = [f"{tag}__{shape}__R", key, f"{kind}__{shape}__A", f"{kind}__{shape}__B"]
            kept |= {name: z[name] for name in names}
np.savez_compressed(Path(__file__).parents[1] / "libraries" / "library_orders.npz", **kept)

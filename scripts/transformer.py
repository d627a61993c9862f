"""Draw docs/transformer.svg: the error of fp8 sums of 13 bits along the depth of a small transformer."""

from pathlib import Path

import nbtc
from nbtc.examples.transformer import Transformer, tokens

WAYS = {
    "wide sums": {"arch": "sm_90", "instruction": "mma"},
    "sm_90, fast": {"arch": "sm_90", "order": "seq"},
    "sm_90, promoted": {"arch": "sm_90"},
    "sm_89, promoted": {"arch": "sm_89"},
}

found = nbtc.torch.compare(Transformer(fp8=True), tokens(), [nbtc.torch.emulated(**way) for way in WAYS.values()])
picture = found.svg()
for name, way in zip(found.archs, WAYS, strict=True):
    picture = picture.replace(f">{name}<", f">{way}<").replace(f"from {name}:", f"from {way}:")
(Path(__file__).resolve().parents[1] / "docs" / "transformer.svg").write_text(picture, encoding="utf-8")

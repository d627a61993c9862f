"""docs/adding.md, run from top to bottom: a format, an architecture and an instruction, each added as one row.

It runs in a process of its own: the toy format must be there before kernels are compiled (its code indexes tables that
are compiled in), and must not be found by other tests.
"""

import re
from pathlib import Path

from tests.processes import forked, output

TREE = Path(__file__).resolve().parents[1]
AFTER = r"""
from nbtc.errors import ParseError, UnsupportedInstructionError
try:
    i(*registers, arch="sm_90")
except UnsupportedInstructionError as error:
    assert "sm_95" in str(error)
else:
    raise SystemExit("sm_90 ran an instruction of sm_95")
try:
    parse.register(row)
except ParseError as error:
    assert "already a row" in str(error)
else:
    raise SystemExit("a row was added twice")
parse.unregister(row)
try:
    nbtc.instruction(row.mnemonic)
except ParseError as error:
    assert "m16n8k" in str(error)
else:
    raise SystemExit("a removed row still parses")
print("every step holds")
"""


def test_the_page_on_adding_runs(tmp_path):
    text = (TREE / "docs" / "adding.md").read_text(encoding="utf-8")
    steps = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(steps) > 6
    code = "\n".join(["import warnings; warnings.simplefilter('ignore')", *steps, AFTER])
    assert output(forked(code, NUMBA_CACHE_DIR=str(tmp_path))) == "every step holds"

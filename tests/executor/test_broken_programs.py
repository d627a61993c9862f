"""Broken programs: each ends in an error that names what is wrong and where, and none takes the process with it."""

import json
import re

import pytest

from tests.executor import broken_programs
from tests.executor.broken_programs import CASES
from tests.processes import forked


@pytest.fixture(scope="module")
def raised():
    """What each of them raised: all run in one process, of which the last word says whether it lived to the end."""
    process = forked(f"import runpy; runpy.run_path({broken_programs.__file__!r}, run_name='__main__')")
    out, error = process.communicate(timeout=300)
    lines = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 0, f"the process died at {lines[-1:]}: {error[-2000:]}"
    return {name: (kind, message) for name, kind, message in lines}


@pytest.mark.parametrize("name", CASES)
def test_a_named_error(name, raised):
    kind, message = raised[name]
    assert re.fullmatch(CASES[name].error, kind), f"{kind}: {message}"
    assert re.search(CASES[name].says, message), message

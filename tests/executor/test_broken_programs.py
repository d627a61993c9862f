"""Broken programs: each ends in an error that names what is wrong and where, and none takes the process with it."""

import json
import re
import subprocess
import sys

import pytest

from tests.executor.broken_programs import CASES


@pytest.fixture(scope="module")
def raised():
    """What each of them raised: all run in one process, of which the last word says whether it lived to the end."""
    command = [sys.executable, "-m", "tests.executor.broken_programs"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"the process died at {lines[-1:]}: {done.stderr[-2000:]}"
    return {name: (kind, message) for name, kind, message in lines}


@pytest.mark.parametrize("name", CASES)
def test_a_named_error(name, raised):
    kind, message = raised[name]
    assert re.fullmatch(CASES[name].error, kind), f"{kind}: {message}"
    assert re.search(CASES[name].says, message), message

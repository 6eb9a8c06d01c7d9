"""One file with the decorator is a pool: the package imports its modules by itself, and no slow library with them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import tailwise.pools
from tailwise.pools import POOLS

PROBE = """
import json, sys, tailwise.pools
print(json.dumps([name for name in ("PIL", "sklearn", "scipy", "pyarrow", "torch") if name in sys.modules]))
"""


def test_discovery_loads_no_slow_library() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_every_decorated_pool_is_registered() -> None:
    texts = [path.read_text(encoding="utf-8") for path in Path(tailwise.pools.__file__).parent.glob("*.py")]
    names = {name for text in texts for name in re.findall(r'^@POOLS\.register\("([\w-]+)"\)$', text, re.MULTILINE)}
    assert len(names) >= 8
    assert names <= set(POOLS)

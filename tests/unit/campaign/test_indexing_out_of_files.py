"""Too many open files: an error of the moment, for which no image is quarantined or called missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tailwise.campaign.images import list_images
from tailwise.campaign.service import Campaign

from .image_files import put, shade

WORK = """
import os, resource, sys
from pathlib import Path
from tailwise.campaign.service import Campaign
from tailwise.campaign.features import embed
from tailwise.campaign.indexing import index
from tailwise.errors import OutOfFiles

with Campaign.open(sys.argv[1]) as campaign:
    ledger = campaign.ledger
    work = {"index": lambda: index(ledger, sys.argv[2]), "embed": lambda: embed(ledger, backbone="simple")}
    asked = work[sys.argv[3]]
    embed(ledger, backbone="simple", keep=False)  # loads all modules, and keeps nothing
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for spare in range(6):  # however far the work comes before a file is needed
        try:
            asked()
            print("no error")
        except OutOfFiles as error:
            print(error)
        except OSError as error:
            print("raw", type(error))
        os.close(held.pop())
"""


@pytest.mark.parametrize("work", ["index", "embed"])
def test_no_image_is_blamed_when_too_many_files_are_open(photos: Path, home: Path, work: str) -> None:
    pytest.importorskip("resource")
    with Campaign.create(home, photos, ["cat"], backbone="simple"):
        pass
    if work == "index":  # something new to read
        put(photos, {"deep/new.bmp": shade(9)})
    done = subprocess.run(
        [sys.executable, "-c", WORK, str(home), str(photos), work], capture_output=True, text=True, check=False
    )
    assert "too many files are open" in done.stdout, done.stderr
    with Campaign.open(home, read_only=True) as campaign:
        assert [row.path for row in list_images(campaign.ledger) if row.trouble] == []

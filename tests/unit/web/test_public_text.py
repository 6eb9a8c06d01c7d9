from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest

from tailwise.web.settings import PublicText

PUBLIC = PublicText(Path("/home/ann lee/birds"), [Path("/data/my photos"), Path("/photos")])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("the ledger of /home/ann lee/birds is busy", "the ledger of birds is busy"),
        ("the ledger of /home/ann lee/birds.", "the ledger of birds."),
        ("/home/ann lee/birds/campaign.sqlite is damaged", "campaign.sqlite is damaged"),
        ("copies are in /home/ann lee/birds/backups: run", "copies are in backups: run"),
        ("[Errno 2] No such file: '/home/ann lee/birds/.job-1/x.npz'", "[Errno 2] No such file: '.job-1/x.npz'"),
        ("no file at /data/my photos/a b/c.jpg; was it moved?", "no file at a b/c.jpg; was it moved?"),
        ("no folder at /photos; is its disk mounted?", "no folder at photos; is its disk mounted?"),
        ("cannot read /usr/lib/x/y.so: denied", "cannot read y.so: denied"),
        (r"cannot read C:\Users\eve\y.dll", "cannot read y.dll"),
        ("see 'D:\\\\data\\\\x.png'", "see 'x.png'"),
        (r"\\server\share\x.png is gone", "x.png is gone"),
        ("/srv/birds2/x and /home/annlee/birds are others", "x and birds are others"),
        # what is not a path of this machine stays
        ("there is no class 'cat/dog'", "there is no class 'cat/dog'"),
        ("open http://127.0.0.1:8765/api/state and/or wait", "open http://127.0.0.1:8765/api/state and/or wait"),
        ("the image sub/dir/a.png was labelled 3/4", "the image sub/dir/a.png was labelled 3/4"),
    ],
)
def test_paths_are_shown_relative_or_by_their_last_name(text: str, shown: str) -> None:
    assert PUBLIC(text) == shown


def test_folders_of_windows_are_known_with_either_slash() -> None:
    folder = PureWindowsPath(r"C:\Users\Ann Lee\birds")
    public = PublicText(folder)  # type: ignore[arg-type]  # only its parts are looked at
    for text in (str(folder), folder.as_posix(), repr(str(folder))[1:-1]):
        assert public(f"{text} is busy") == "birds is busy"
    assert public(rf"cannot write '{folder}\models\7'") == r"cannot write 'models\7'"


@pytest.mark.parametrize("kind", [PurePosixPath, PureWindowsPath])
def test_a_folder_without_a_name_is_passed_over(kind: type[PurePosixPath] | type[PureWindowsPath]) -> None:
    assert PublicText(kind("/"))("1 / 2 is half") == "1 / 2 is half"  # type: ignore[arg-type]

"""Messages without the server's folders: errors name files by their full path, which is for the log alone."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

_SLASH = r"[\\/]+"
_END = r"(?![\w-]|\.\w)"  # the name of a folder ends here
_NAME = r"[^\s'\"`;:,()<>|\\/]"
_ABSOLUTE = re.compile(rf"(?<![\w.~:\\/-])(?:[A-Za-z]:[\\/]|[\\/])[\\/]*(?:{_NAME}+{_SLASH})+({_NAME}*)")


class PublicText:
    """Shortens paths: below a known folder to what is relative to it, any other to its last name.

    >>> public = PublicText(Path("/home/ann lee/birds"), [Path("/data/photos")])
    >>> public("cannot read /home/ann lee/birds/models/7; is /data/photos there? See '/etc/ssl/cert.pem'")
    "cannot read models/7; is photos there? See 'cert.pem'"
    """

    def __init__(self, folder: Path, roots: Iterable[Path] = ()) -> None:
        known = {folder, *roots, Path(tempfile.gettempdir()), *_home()}
        longest_first = sorted(known, key=lambda path: -len(path.parts))
        self._known = [(_pattern(path), path.name) for path in longest_first if path.name]

    def __call__(self, text: str) -> str:
        """The same message, for everybody."""
        for pattern, name in self._known:
            text = pattern.sub(lambda found, name=name: "" if found["below"] else name, text)  # type: ignore[misc]
        return _ABSOLUTE.sub(lambda found: str(found[1]), text)


def _home() -> list[Path]:
    try:
        return [Path.home()]
    except RuntimeError:  # a user without one
        return []


def _pattern(path: Path) -> re.Pattern[str]:
    """A folder, with either kind of slash, doubled where the message shows it escaped; and the slash after it."""
    names = _SLASH.join(re.escape(part.strip("\\/")) for part in path.parts if part.strip("\\/"))
    start = _SLASH if path.parts[0].startswith(("/", "\\")) else ""
    return re.compile(rf"(?<![\w.]){start}{names}(?:(?P<below>{_SLASH})(?=[\w.])|{_END})")

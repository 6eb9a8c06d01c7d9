"""Property tests draw the same examples every time and are not timed, so that `make test` says of one tree one thing.

`pytest --hypothesis-profile explore` draws new examples.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("same")

"""What `tailwise.Campaign` names: the campaign with all its verbs, those of the rooms above it included."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .campaign import campaign as inner
from .registry import check_settings
from .types import Progress, unheard

if TYPE_CHECKING:
    from .web.serve import Serving


class Campaign(inner.Campaign):
    """Label a folder of images, round after round, and lose nothing; make one with `create` or `open`.

    >>> import tailwise
    >>> from tempfile import mkdtemp
    >>> from PIL import Image
    >>> photos = Path(mkdtemp())
    >>> for shade in (10, 200):
    ...     Image.new("L", (8, 8), shade).save(photos / f"{shade}.png")
    >>> with tailwise.Campaign.create(Path(mkdtemp()) / "birds", photos, ["owl", "kite"]) as campaign:
    ...     _ = campaign.label("10.png", "owl")
    ...     campaign.labels()
    {'10.png': 'owl'}
    """

    def report(self, out: str | Path | None = None, *, dry_run: bool = False, report: Progress = unheard) -> Path:
        """Write a page with figures and tables, and give its path: `campaign.report()`; with `dry_run`, the path alone.

        It is written into the campaign's folder, or into the one that `out` names.
        """
        from .report.campaign_page import campaign_report_place, write_campaign_report

        return campaign_report_place(self, out) if dry_run else write_campaign_report(self, out, report=report)

    def serve(self, **options: Any) -> AbstractContextManager[Serving]:  # noqa: ANN401 - those of `web.serve.Options`
        """Serve the labelling page while a block runs: `with campaign.serve() as page: print(page.link); input()`.

        `options` are those of `tailwise label`: `host`, `port`, `blind`, `overlap` and the other fields of
        `tailwise.web.serve.Options`. The block may use the campaign, too; the page ends with it.
        """
        from .web.serve import Options, running

        check_settings("the labelling page", options, [one.name for one in fields(Options)])
        return running(self, Options(**options))

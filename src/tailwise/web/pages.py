"""The pages that are sent without a token: what to do without a valid link, and the one that loads itself again.

They need no other file, since none is sent without a token; their style is allowed by its digest in their own policy.
"""

from __future__ import annotations

import base64
import hashlib

_STYLE = """
:root { color-scheme: light dark; font: 100%/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center;
  background: light-dark(#f4f5f7, #0f1215); color: light-dark(#1b222b, #e9ecf0); }
main { box-sizing: border-box; width: min(34rem, 100%); padding: 2.5rem 1.25rem; text-align: center; }
svg { width: 30px; height: 30px; fill: none; stroke: light-dark(#2b5fd9, #8db2ff); stroke-width: 1.75;
  stroke-linecap: round; padding: 17px; border-radius: 20px; background: light-dark(#e9effd, #1b2740); }
h1 { margin: 1rem 0 .4rem; font-size: 1.45rem; line-height: 1.25; letter-spacing: -.015em; }
p { margin: .5rem 0; color: light-dark(#566170, #a5afbb); text-wrap: balance; }
code { padding: .1em .4em; border-radius: 5px; background: light-dark(#e9ebef, #20262d); color: inherit; }
form { display: flex; flex-wrap: wrap; align-items: end; gap: .6rem; margin-top: 1.6rem; text-align: start; }
label { flex: 1 1 16rem; font-size: .88rem; font-weight: 600; }
input, button { box-sizing: border-box; min-height: 46px; border-radius: 12px; font: inherit; }
input { display: block; width: 100%; margin-top: .3rem; padding: 0 .9rem; color: inherit;
  border: 1px solid light-dark(#8a94a1, #67727f); background: light-dark(#fff, #181c21); }
button { flex: 0 0 auto; padding: 0 1.4rem; border: 0; font-weight: 600; cursor: pointer;
  background: light-dark(#2b5fd9, #8db2ff); color: light-dark(#fff, #0b1730); }
:focus-visible { outline: 2.5px solid light-dark(#2b5fd9, #8db2ff); outline-offset: 2px; }
"""


def token_page(title: str, why: str) -> bytes:
    """What to do without a valid token, with a field for the printed link."""
    return f"""<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>{title} · Tailwise</title>
  <style>{_STYLE}</style>
</head>
<body>
  <main>
    <svg viewBox="0 0 24 24" aria-hidden="true"><circle cx="8" cy="15.5" r="4"/>
      <path d="m11 12.5 8.5-8.5M16 7.5l3 3"/></svg>
    <h1>{title}</h1>
    <p>{why}</p>
    <p>Open the link that <code>tailwise label</code> printed in its terminal, or ask the person who started it for
      that link. Answers that wait in this browser are kept.</p>
    <form action="/" method="get">
      <label>Link or token <input name="token" type="text" autocomplete="off" spellcheck="false" required autofocus
        placeholder="http://…/?token=…"></label>
      <button type="submit">Open</button>
    </form>
  </main>
</body>
</html>
""".encode()


NO_TOKEN_PAGE = token_page("This page needs its link", "The link contains the token without which nobody gets in.")
WRONG_TOKEN_PAGE = token_page(
    "This link is not valid", "The token belongs to another campaign, or to a server that was started again since."
)
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
TOKEN_PAGE_CSP = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
RELOAD_PAGE = (
    b"<!doctype html><html lang=en><meta charset=utf-8><title>Tailwise</title><p><a href=/>Tailwise</a></p></html>"
)

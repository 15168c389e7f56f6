"""The pages of the dashboard: static files with a content security policy, which need no key. Every
view is the same page; its script asks the API, which checks the key."""

from __future__ import annotations

import mimetypes
from functools import cache
from importlib import resources
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
VIEWS = frozenset({"/", "/jobs", "/fleet", "/control"})
VIEW_PREFIXES = ("/s/", "/jobs/", "/p/")
ASSETS = "/assets/"
NOT_BUILT = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>Fairlane</title></head>
<body><h1>Fairlane is running</h1>
<p>The dashboard is not part of this installation, because its files could not be built.</p>
<p>In a source tree, run <code>python3 dev.py setup</code> and start the server again. It needs
the npm registry.</p>
<p>Everything else works: <a href="/docs">the API</a>, the command line, and
<code>fairlane top</code> in a terminal.</p></body></html>
"""


class Page(NamedTuple):
    content: bytes
    media_type: str
    cache: str


@cache
def files() -> dict[str, Page]:
    """The built files by path. Without a build there is only a page that says what to do."""
    folder = resources.files("fairlane.dashboard") / "dist"
    index, assets = folder / "index.html", folder / "assets"
    found: dict[str, Page] = {}
    if not index.is_file():
        found["/"] = Page(NOT_BUILT.encode(), "text/html", "no-cache")
        return found
    found["/"] = Page(index.read_bytes(), "text/html", "no-cache")
    for each in assets.iterdir() if assets.is_dir() else ():
        kind = mimetypes.guess_type(each.name)[0] or "application/octet-stream"
        lasting = "public, max-age=31536000, immutable"
        found[ASSETS + each.name] = Page(each.read_bytes(), kind, lasting)
    return found


def find(path: str) -> Page | None:
    """The page or file at this path; None if the path is no part of the dashboard."""
    if path in VIEWS or path.startswith(VIEW_PREFIXES):
        return files()["/"]
    return files().get(path) if path.startswith(ASSETS) else None


async def respond(page: Page, scope: Scope, receive: Receive, send: Send) -> None:
    headers = {"Cache-Control": page.cache, "Content-Security-Policy": POLICY}
    if scope["method"] not in ("GET", "HEAD"):
        response = Response(status_code=405, headers={"Allow": "GET, HEAD"})
    else:
        response = Response(page.content, 200, headers, page.media_type)
    await response(scope, receive, send)

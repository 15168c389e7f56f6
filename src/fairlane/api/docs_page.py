"""The API reference page: Swagger UI, served from files of the `fastapi-swagger` package. The page
loads nothing from another host and has no inline script."""

from __future__ import annotations

import html
from functools import cache
from importlib import resources
from typing import NamedTuple

from fairlane.doctor import page as checks_page

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"Content-Security-Policy": POLICY}
FILE_HEADERS = {"Cache-Control": "private, max-age=3600"}

START = b"""
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  filter: true,
  validatorUrl: null,
  defaultModelsExpandDepth: 0,
});
"""
STYLE = b"""
body { margin: 0; background: #fff; color: #3b4151 }
.dark-mode body { background: #1c2022; color: #e4e6e6 }
.swagger-ui .opblock-summary-path { overflow-wrap: anywhere }
"""


class StaticFile(NamedTuple):
    content: bytes
    media_type: str


def page(title: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title>"
        '<link rel="icon" href="docs/favicon-32x32.png">'
        '<link rel="stylesheet" href="docs/swagger-ui.css">'
        '<link rel="stylesheet" href="docs/page.css"></head><body><div id="reference"></div>'
        '<noscript>This page needs JavaScript. <a href="openapi.json">openapi.json</a> says the'
        " same.</noscript>"
        '<script src="docs/swagger-ui-bundle.js"></script><script src="docs/start.js"></script>'
        "</body></html>"
    )


@cache
def static_files() -> dict[str, StaticFile]:
    """Returns the static files by their names below `/docs/`."""
    folder = resources.files("fastapi_swagger.resources")
    types = {
        "swagger-ui-bundle.js": "text/javascript",
        "swagger-ui.css": "text/css",
        "favicon-32x32.png": "image/png",
    }
    found = {name: StaticFile((folder / name).read_bytes(), kind) for name, kind in types.items()}
    found["start.js"] = StaticFile(START, "text/javascript")
    found["page.css"] = StaticFile(STYLE, "text/css")
    found["checks"] = StaticFile(checks_page.as_html().encode(), "text/html; charset=utf-8")
    found["checks.css"] = StaticFile(checks_page.STYLE, "text/css")
    return found

"""The API description as one HTML page without scripts."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

TICKS = re.compile(r"`([^`]+)`")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
}
STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h3 { margin: 1.5rem 0 0 } code, pre { font: 14px/1.4 ui-monospace, monospace }
h3 code { overflow-wrap: anywhere } p { margin: .3rem 0 .6rem }
pre { background: #8881; padding: .7rem; margin: 0 0 .6rem; overflow-x: auto; border-radius: 4px }
b { display: inline-block; min-width: 5.5rem } small { color: #767676; font-weight: normal }
@media (prefers-color-scheme: dark) {
  body { background: #111; color: #ddd } a { color: #8bf } small { color: #999 } }
"""


def docs(description: dict[str, Any]) -> str:
    title = html.escape(description["info"]["title"])
    body = "\n".join(_body(description))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style><h1>{title}</h1>"
        f"<p>{html.escape(description['info']['summary'])} "
        f'For programs: <a href="/openapi.json">openapi.json</a>.</p>{body}</html>'
    )


def _body(description: dict[str, Any]) -> Iterator[str]:
    tag = ""
    schemas = description["components"]["schemas"]
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            if operation["tags"][0] != tag:
                tag = operation["tags"][0]
                yield f"<h2>{html.escape(tag)}</h2>"
            access = html.escape(operation["x-access"])
            yield (
                f"<h3><b>{method.upper()}</b><code>{html.escape(path)}</code> "
                f"<small>{access}</small></h3>"
            )
            yield f"<p>{_text(operation.get('description', ''))}</p>"
            for label, example in _examples(operation, schemas):
                text = json.dumps(example, indent=2, ensure_ascii=False)
                yield f"<small>{label}</small><pre>{html.escape(text)}</pre>"


def _text(markdown: str) -> str:
    """What stands in `ticks` is code."""
    return TICKS.sub(r"<code>\1</code>", html.escape(markdown))


def _examples(
    operation: dict[str, Any], schemas: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is sent, then what comes back, where there is an example of it."""
    answers = [
        (f"answer {code}", response)
        for code, response in operation["responses"].items()
        if code.startswith("2")
    ]
    shown: list[str] = []
    for label, each in [("request", operation.get("requestBody", {})), *answers]:
        content = each.get("content", {}).get("application/json", {})
        reference = content.get("schema", {}).get("$ref", "")
        if reference not in shown:
            shown.append(reference)
            for example in schemas.get(reference.rpartition("/")[2], {}).get("examples", [])[:1]:
                yield label, example

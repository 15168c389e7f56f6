"""The description of the API as one page, without scripts and without anybody else's server."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from typing import Any

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h3 { margin: 1.5rem 0 0 } code, pre { font: 14px/1.4 ui-monospace, monospace }
pre { background: #8881; padding: .7rem; overflow-x: auto; border-radius: 4px }
b { display: inline-block; min-width: 4.5rem } small { color: #888 }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd } a { color: #8bf } }
"""


def docs(description: dict[str, Any]) -> str:
    title = html.escape(description["info"]["title"])
    body = "\n".join(_body(description))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style><h1>{title}</h1><p>{html.escape(description['info']['summary'])} "
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
            yield f"<p>{html.escape(operation.get('description', ''))}</p>"
            for example in _examples(operation, schemas):
                text = json.dumps(example, indent=2, ensure_ascii=False)
                yield f"<pre>{html.escape(text)}</pre>"


def _examples(operation: dict[str, Any], schemas: dict[str, Any]) -> Iterator[Any]:
    """What is sent, then what comes back, where there is an example of it."""
    content = [operation.get("requestBody", {}).get("content", {})]
    content += [
        response.get("content", {})
        for code, response in operation["responses"].items()
        if code.startswith("2")
    ]
    for each in content:
        reference = each.get("application/json", {}).get("schema", {}).get("$ref", "")
        yield from schemas.get(reference.rpartition("/")[2], {}).get("examples", [])[:1]

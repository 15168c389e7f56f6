"""The check of the built site notices what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import site
from tests.docs.blocks import blocks


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ('<a href="gone.html">x</a>', "gone.html leads nowhere"),
        ('<a href="#gone">x</a>', "#gone: no such part of the page"),
        ('<a href="other.html#gone">x</a>', "other.html#gone: no such part of the page"),
        ('<img src="gone.png">', "gone.png leads nowhere"),
        ('<script src="https://elsewhere.example/x.js"></script>', "from another host"),
        ('<link rel="stylesheet" href="//elsewhere.example/x.css">', "from another host"),
    ],
)
def test_a_page_that_needs_something_that_is_not_there_is_noticed(
    html: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "SITE", tmp_path)
    (tmp_path / "other.html").write_text('<h1 id="here"></h1>')
    (tmp_path / "index.html").write_text(html)
    with pytest.raises(site.SiteError, match=problem.replace("?", r"\?")):
        site.follow_links()


def test_sound_links_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "SITE", tmp_path)
    (tmp_path / "other.html").write_text('<h1 id="here"></h1>')
    links = '<a href="other.html#here">a</a><a href="https://elsewhere.example">b</a>'
    (tmp_path / "index.html").write_text(links)
    assert site.follow_links() == 2


def test_a_script_that_names_another_host_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "SITE", tmp_path)
    (tmp_path / "bundle.js").write_text('load("https://unpkg.com/x")')
    with pytest.raises(site.SiteError, match="names another host"):
        site.follow_links()
    site.remove_hosts_of_others()
    assert site.follow_links() == 0


def test_a_marker_belongs_to_the_block_after_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- not run: needs a moon -->\n```bash\nfly\n```\n\n```text\nflown\n```\n\nand\n\n"
        "```python\n# ship.py\nland()\n```\n"
    )
    fly, flown, land = blocks(page)
    assert (fly.not_run, fly.line, fly.follows) == ("needs a moon", 2, False)
    assert (flown.not_run, flown.line, flown.follows) == ("", 6, True)
    assert (land.not_run, land.line, land.follows) == ("", 12, False)
    assert land.file_name == "ship.py"

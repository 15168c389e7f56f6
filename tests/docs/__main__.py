"""The documentation: `python3 dev.py docs`.

Without arguments it builds the site into `build/site`, follows every link, and lists the blocks
that no test executes. `test` also executes the blocks that `make test` leaves out, with `--short`
only those of the first pages. `pictures` draws the pictures anew, `llms` writes `docs/llms.txt`.
`--builder mkdocs` builds with mkdocs-material instead of Zensical."""

from __future__ import annotations

import argparse
import subprocess
import sys

from tests.docs import llms_txt
from tests.docs.blocks import blocks, blocks_not_run, listing, pages
from tests.docs.site import SITE, SiteError, build
from tests.repo.checkout import ROOT

PYTEST = (sys.executable, "-m", "pytest", "-q", "--stores=embedded", "-m", "long", "tests/docs")
FIRST_PAGES = (
    "-k",
    "README or first-five-minutes or recipes or generation or regions or inference",
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="dev.py docs", description=__doc__)
    parser.add_argument("task", nargs="?", choices=["build", "test", "pictures", "llms"])
    parser.add_argument("--builder", choices=["zensical", "mkdocs"], default="zensical")
    parser.add_argument("--short", action="store_true")
    asked = parser.parse_args(arguments)
    if asked.task == "llms":
        llms_txt.PAGE.write_text(llms_txt.llms_txt(), "utf-8")
        return 0
    if asked.task == "pictures":
        from tests.docs.pictures import draw_all

        draw_all()
        return 0
    try:
        links = build(asked.builder)
    except SiteError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{SITE.relative_to(ROOT)}: {links} links followed, none leads nowhere")
    found = blocks_not_run()
    every = sum(len(blocks(page)) for page in pages())
    print(f"{every} blocks, {len(found)} of them not executed here:\n{listing(found)}")
    if asked.task != "test":
        return 0
    return subprocess.call([*PYTEST, *(FIRST_PAGES if asked.short else ())], cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A browser window for one test: what it is asked, shows and complains about."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, WebSocket, expect

Scheme = Literal["light", "dark"]

TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
VIOLATIONS = """
window.violations = [];
addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""
CONTROLS = {"button", "link", "textbox", "searchbox", "combobox", "checkbox", "slider"} | {
    "spinbutton",
    "option",
    "img",
    "dialog",
    "region",
}
WAIT_MS = 20_000


class Window:
    """Closing it fails the test if the page wrote to the console, threw, broke its security policy
    or asked another host for something."""

    def __init__(
        self, browser: Browser, pictures: Path, *, width: int = 1200, scheme: Scheme = "light"
    ) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        self.context.set_default_timeout(WAIT_MS)
        self.context.add_init_script(VIOLATIONS)
        self._pictures, self._width, self._scheme = pictures, width, scheme
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.accepted: tuple[str, ...] = ()
        """Parts of console messages that the test causes on purpose."""
        self.live: WebSocket | None = None
        """The socket that brings the frames."""
        self.page = self._opened(self.context.new_page())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.check()
        finally:
            self.context.close()

    def _opened(self, page: Page) -> Page:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self._dialog(dialog.message, dialog))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("websocket", self._socket)
        return page

    def _socket(self, socket: WebSocket) -> None:
        self.requests.append(socket.url)
        if "/ws/" not in socket.url:
            self.live = socket

    def _console(self, message: ConsoleMessage) -> None:
        if not any(part in message.text for part in self.accepted):
            self.complaints.append(f"{message.type}: {message.text}")

    def _dialog(self, text: str, dialog: Any) -> None:
        self.complaints.append(f"a dialog of a script: {text}")
        dialog.dismiss()

    def open(self, url: str) -> Page:
        self.page.goto(url)
        return self.page

    def check(self) -> None:
        own = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "file:", "about:")
        foreign = [url for url in self.requests if not url.startswith(own)]
        violations = self.page.evaluate("window.violations ?? []")
        if found := [*self.complaints, *violations, *foreign]:
            pytest.fail("\n".join(map(str, found)))

    def picture(self, name: str) -> None:
        """Keeps the whole page as a picture."""
        self._pictures.mkdir(exist_ok=True)
        height = self.page.evaluate("document.documentElement.scrollHeight")
        before = self.page.viewport_size
        self.page.set_viewport_size({"width": self._width, "height": min(4000, max(900, height))})
        path = self._pictures / f"{name}-{self._width}-{self._scheme}.png"
        self.page.screenshot(path=path)
        if before is not None:
            self.page.set_viewport_size(before)

    def fits(self) -> None:
        """Nothing scrolls sideways, and dark is light on dark."""
        assert self.page.evaluate(TOO_WIDE) == 0
        ink, back = (
            brightness(self.page.evaluate(f"getComputedStyle(document.body).{each}"))
            for each in ("color", "backgroundColor")
        )
        assert (ink > back) is (self._scheme == "dark")
        assert abs(ink - back) > 150

    def unnamed_controls(self) -> list[str]:
        """Controls that a screen reader could only call by their kind."""
        session = self.context.new_cdp_session(self.page)
        nodes = session.send("Accessibility.getFullAXTree")["nodes"]
        session.detach()
        return [
            f"{node['role']['value']} {node.get('properties', [])}"
            for node in nodes
            if not node.get("ignored")
            and node.get("role", {}).get("value") in CONTROLS
            and not node.get("name", {}).get("value", "").strip()
        ]

    def get_frames(self, count: int) -> None:
        """Returns when the page has got so many more messages."""
        assert self.live is not None
        for _ in range(count):
            self.live.wait_for_event("framereceived")

    def is_live(self) -> None:
        expect(self.page.get_by_role("button", name="live; pause or go on")).to_be_visible()


def brightness(colour: str) -> float:
    """Of "rgb(27, 36, 48)"; a page without a colour is white."""
    parts = [float(each) for each in colour.partition("(")[2].rstrip(")").split(",")]
    if len(parts) == 4 and parts[3] == 0:
        return 255
    return sum(parts[:3]) / 3

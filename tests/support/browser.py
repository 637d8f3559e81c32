"""A real browser without a window, asked over its DevTools protocol: how a page looks, and what it complains of."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from patience import PATIENCE_SECONDS
from testbed import packages

_PACKAGE: Final = "chromium-headless-shell"
"""Debian's; 64 MB to download, about 90 MB with the libraries that it needs."""

_NAMES: Final = (_PACKAGE, "chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")


def find_browser() -> str:
    """A Chromium of this machine, installed by apt where there is none. Raises ``testbed.errors.Unavailable``."""
    found = next((path for name in _NAMES if (path := shutil.which(name)) is not None), None)
    if found is not None:
        return found
    packages.ensure({f"/usr/bin/{_PACKAGE}": _PACKAGE})
    return f"/usr/bin/{_PACKAGE}"


@dataclass(frozen=True, slots=True)
class Seen:
    """A page after it was loaded. A picture of it has ``colours`` different ones, ``paper`` is its first pixel;
    ``requests`` are addresses other than its own, ``complaints`` what the console and the browser's log say; ``width``
    is that of all it holds, in pixels; ``elements`` counts them by name."""

    colours: int
    paper: tuple[int, int, int]
    requests: tuple[str, ...]
    complaints: tuple[str, ...]
    text: str
    width: int
    elements: Counter[str]


@dataclass(slots=True)
class Tab:
    """One page. Answers come by number, events by name."""

    socket: aiohttp.ClientWebSocketResponse
    events: list[dict[str, Any]] = field(default_factory=list)
    _asked: int = 0

    async def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        """One command, and its answer; events that come before it are kept."""
        self._asked += 1
        await self.socket.send_json({"id": self._asked, "method": method, "params": parameters})
        while True:
            reply = await self._next()
            if reply.get("id") == self._asked:
                assert "error" not in reply, (method, reply["error"])
                return dict(reply["result"])

    async def until(self, event: str) -> None:
        """Wait for an event."""
        while not any(reply["method"] == event for reply in self.events):
            await self._next()

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page, or what its promise comes to."""
        answer = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def _next(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            reply: dict[str, Any] = await self.socket.receive_json()
        if "method" in reply:
            self.events.append(reply)
        return reply


@asynccontextmanager
async def browser(program: str, profile: Path) -> AsyncIterator[str]:
    """A browser that runs within the block; the address where it takes commands."""
    process = await asyncio.create_subprocess_exec(
        program,
        "--headless",
        "--no-sandbox",  # which is not there for root; the pages are the tests' own
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--remote-debugging-port=0",
        f"--user-data-dir={profile}",
        "about:blank",
        # No pipes: the browser's own children would keep them open, and waiting for its end would not end.
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "HOME": str(profile)},
        start_new_session=True,
    )
    try:
        yield await _address(process, profile / "DevToolsActivePort")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _address(process: asyncio.subprocess.Process, announcement: Path) -> str:
    """Where the browser takes commands, which it writes down when it does."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            assert process.returncode is None, f"the browser ended with {process.returncode} before it listened"
            words = announcement.read_text().split() if announcement.exists() else []
            if len(words) == 2:
                return f"127.0.0.1:{words[0]}"
            await asyncio.sleep(0.05)


async def look_at(address: str, page: Path, *, width: int, dark: bool = False) -> Seen:
    """Load a file in a tab of its own, ``width`` pixels wide, and wait until it is drawn."""
    async with aiohttp.ClientSession() as session:
        async with session.put(f"http://{address}/json/new?about:blank") as reply:
            tab_address = (await reply.json(content_type=None))["webSocketDebuggerUrl"]
        async with session.ws_connect(tab_address, max_msg_size=2**26) as socket:
            return await _look(Tab(socket), page, width=width, dark=dark)


async def _look(tab: Tab, page: Path, *, width: int, dark: bool) -> Seen:
    for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
        await tab.ask(f"{domain}.enable")
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    await tab.ask("Emulation.setEmulatedMedia", features=[scheme])
    await tab.ask(
        "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
    )
    tab.events.clear()
    own = page.resolve().as_uri()
    await tab.ask("Page.navigate", url=own)
    await tab.until("Page.loadEventFired")
    # The next frame but one: what the load brought has been drawn by then.
    await tab.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
    shot = await tab.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
    width = int(await tab.evaluate("document.documentElement.scrollWidth"))
    text = str(await tab.evaluate("document.body.innerText"))
    names = await tab.evaluate("[...document.querySelectorAll('*')].map(element => element.localName)")
    requests, complaints = tuple(_requests(tab, own)), tuple(_complaints(tab))
    colours, paper = await _pixels(tab, shot["data"])
    return Seen(
        colours=colours,
        paper=paper,
        requests=requests,
        complaints=complaints,
        text=text,
        width=width,
        elements=Counter(names),
    )


_COUNT: Final = """(async () => {
  const picture = await createImageBitmap(await (await fetch("data:image/png;base64,%s")).blob());
  const canvas = new OffscreenCanvas(picture.width, picture.height), brush = canvas.getContext("2d");
  brush.drawImage(picture, 0, 0);
  const pixels = new Uint32Array(brush.getImageData(0, 0, picture.width, picture.height).data.buffer);
  return [new Set(pixels).size, pixels[0]];
})()"""


async def _pixels(tab: Tab, png: str) -> tuple[int, tuple[int, int, int]]:
    """How many colours a picture has, and its first pixel: the browser can read it, and the page is no longer asked."""
    tab.events.clear()
    await tab.ask("Page.navigate", url="about:blank")
    await tab.until("Page.loadEventFired")
    number, first = await tab.evaluate(_COUNT % png)
    return int(number), (first & 255, first >> 8 & 255, first >> 16 & 255)


def _requests(tab: Tab, own: str) -> list[str]:
    sent = (reply["params"]["request"]["url"] for reply in tab.events if reply["method"] == "Network.requestWillBeSent")
    return [url for url in sent if url != own]


def _complaints(tab: Tab) -> list[str]:
    telling = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Audits.issueAdded")
    return [str(reply["params"]) for reply in tab.events if reply["method"] in telling]

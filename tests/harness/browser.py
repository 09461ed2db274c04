"""A browser without a window, over its debugging protocol; it remembers what it complained of and asked for."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome")
START_SECONDS = 30.0
ANSWER_SECONDS = 20.0
# Nothing is asked of anybody but the pages under test, and root may run it.
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--remote-debugging-port=0",
)


@contextmanager
def open_browser(folder: Path) -> Iterator["Tab"]:
    """Start a browser and yield its tab; it ends with the block.

    Args:
        folder: for its profile.
    """
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    assert program is not None, f"no browser was found; install the package {NAMES[0]}"
    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
        env={**os.environ, "HOME": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with connect(_find_tab(process, folder / "DevToolsActivePort"), max_size=None) as connection:
            yield Tab(connection)
    finally:
        process.terminate()
        try:
            process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(START_SECONDS)


def _find_tab(process: "subprocess.Popen[bytes]", told: Path) -> str:
    """Return where the tab is reached that a browser opens at its start."""
    deadline = time.monotonic() + START_SECONDS
    while not (told.exists() and told.read_text().count("\n")):
        assert process.poll() is None, f"the browser ended with {process.returncode}"
        assert time.monotonic() < deadline, "the browser does not say where it listens"
        time.sleep(0.05)
    port, path = told.read_text().split("\n")[:2]
    with connect(f"ws://127.0.0.1:{port}{path}", max_size=None) as whole:
        whole.send(json.dumps({"id": 1, "method": "Target.getTargets"}))
        targets = json.loads(whole.recv(timeout=ANSWER_SECONDS))["result"]["targetInfos"]
    tab = next(target["targetId"] for target in targets if target["type"] == "page")
    return f"ws://127.0.0.1:{port}/devtools/page/{tab}"


class Tab:
    """A page of a browser.

    Args:
        connection: for the protocol.

    Attributes:
        complaints: errors and warnings of the console, and exceptions, of all documents so far.
        requested: every URL asked for.
        loads: how many documents were loaded.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self.complaints: list[str] = []
        self.requested: list[str] = []
        self.loads = 0
        self._connection = connection
        self._number = 0
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        self._connection.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = self._receive()
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]

    def open(self, url: str, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Open a page in a window of that size and wait until it has loaded."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        before = self.loads
        self.ask("Page.navigate", url=url)
        self.wait(lambda: self.loads > before)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Take messages until the condition holds."""
        while not condition():
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript in the page."""
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"]["value"]

    def capture(self, file: Path) -> bytes:
        """Write a picture of the whole page, and return it."""
        taken = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        picture = base64.b64decode(taken["data"])
        file.write_bytes(picture)
        return picture

    def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._connection.recv(timeout=ANSWER_SECONDS))
        parameters = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self.loads += 1
            case "Network.requestWillBeSent":
                self.requested.append(parameters["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(parameters["exceptionDetails"]["text"])
            case "Runtime.consoleAPICalled" if parameters["type"] in {"error", "warning", "assert"}:
                self.complaints.append(str(parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in {"error", "warning"}:
                self.complaints.append(parameters["entry"]["text"])
        return message

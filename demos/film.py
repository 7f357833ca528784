"""The film beside a memory: what a browser plays while somebody asks about it.

It is served under a random name that ends with the memory. A film that a browser cannot play is
written again in the background; the model never sees it. Knows no visitor and no memory.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

from demos.preview import write_preview
from hermes_like.errors import SourceError

logger = logging.getLogger(__name__)


class Film:
    """Belongs to one memory.

    Attributes:
        path: Where it is; None: there is none (yet).
        token: Random name under which it is served; empty: it is not.
        error: Why no preview could be made, in one sentence.
        is_making_preview: Whether one is on its way.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self.token = self.error = ""
        self.is_making_preview = False
        self._is_over = False
        self._thread: threading.Thread | None = None

    def show(self, path: Path | None) -> None:
        """Serve a file from now on."""
        if path is not None and not self._is_over:
            self.path, self.token = path, secrets.token_urlsafe(16)

    def find(self, token: str) -> Path | None:
        """The file, if the name is right."""
        is_right = bool(self.token) and secrets.compare_digest(token, self.token)
        return self.path if is_right else None

    def write(self, make: Callable[[Path], Path], folder: Path) -> None:
        """Have a film written in the background, and show it.

        Args:
            make: Writes to the path it is given.
            folder: Where.
        """
        place = folder / f"clip-{secrets.token_hex(4)}.mp4"
        self._in_background(lambda: self.show(make(place)))

    def make_preview(self, folder: Path) -> None:
        """Write it again so that browsers can play it; done once."""
        path = self.path
        if path is None or path.stem == "preview" or self.is_making_preview:
            return
        self.is_making_preview, self.error = True, ""

        def work() -> None:
            try:
                self.show(write_preview(path, folder, lambda: self._is_over))
            except SourceError as error:
                self.error = str(error)
            finally:
                self.is_making_preview = False

        self._in_background(work)

    def _in_background(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except Exception:  # a film is a comfort: watching and asking go on without it
                if not self._is_over:
                    logger.exception("no film for the page")

        self._thread = threading.Thread(target=run, name="film", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait until nothing is being written; whether that is so."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        return thread is None or not thread.is_alive()

    def moved(self, folder: Path) -> None:
        """Its folder has another name now."""
        if self.path is not None:
            self.path = folder / self.path.name

    def end(self) -> None:
        """Serve it no more; what is being written is not wanted."""
        self._is_over = True
        self.path, self.token = None, ""

"""All visitors together: models and engines, folders, names in use, and the quota.

Knows nothing of pages.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from pathlib import Path

from demos.choice import DemoError
from demos.own_folder import OwnFolder
from demos.settings import DemoSettings
from demos.uploads import remove_leftovers, used_bytes
from demos.visit import Visit
from hermes_like.cli.options import build_config
from hermes_like.config import HermesConfig
from hermes_like.engine import Engine
from hermes_like.models import load_model

logger = logging.getLogger(__name__)

#: A page that has not called for so long is taken to be gone, whatever its connection says.
#: Browsers slow pages in the background down to one call per minute.
SILENT_PAGE_S = 300.0
#: A page whose connection broke is waited for so long; calls that come within the first second may
#: have been on their way before.
GRACE_S, STRAY_S = 3.0, 1.0
LOOK_S, HOUSEKEEPING_S = 0.5, 20.0
#: Pages that are gone and are remembered, so that a late call does not begin a visit anew.
MAX_GONE = 1024
#: How long a count of used bytes is believed.
COUNT_S = 2.0


class Site:
    """What visitors share.

    Args:
        settings: How the page is served.
        uploads_root: Where the server puts uploads.
    """

    def __init__(self, settings: DemoSettings, uploads_root: Path) -> None:
        self.settings, self.uploads_root = settings, uploads_root
        self.saved_root = settings.memory_root.expanduser().resolve()
        for folder in (self.saved_root, uploads_root):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._own = OwnFolder(self.saved_root / ".visits")
        self.visits_root = self._own.path
        self._lock = threading.RLock()
        self._loading = threading.Lock()
        self._engines: dict[str, Engine] = {}
        self._visits: dict[str, Visit] = {}
        self._gone: deque[str] = deque(maxlen=MAX_GONE)
        self._names: set[str] = set()
        self._counted = (0.0, 0)
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep_house, name="demo keeper", daemon=True)
        self._keeper.start()

    # -- models ----------------------------------------------------------------------------------

    def models(self) -> list[str]:
        """Names that can be chosen: those given at the start, then folders with a model."""
        names = list(self.settings.models)
        root = self.settings.models_root
        if root is not None and root.is_dir():
            found = sorted(str(path.parent) for path in root.glob("*/config.json"))
            names += [name for name in found if name not in names]
        return names

    def config(self, model: str) -> HermesConfig:
        """The configuration of a model's preset with the overrides of the start.

        Raises:
            ConfigError: An override cannot work.
        """
        # The bundled model is what the defaults are made for; several presets name it.
        named = None if model == "sprites" else model
        return build_config(model=named, settings=list(self.settings.overrides))

    def engine(self, model: str) -> Engine:
        """The engine of a model, which is loaded the first time.

        Raises:
            DemoError: The model is not one of those that can be chosen.
            ModelError: It cannot be used.
        """
        if model not in self.models():
            raise DemoError(f"{model!r} is not one of the models of this page.")
        with self._loading:
            if model not in self._engines:
                config = self.config(model)
                shared = config.engine.model_copy(
                    update={"disk_bytes": config.engine.disk_bytes or self.settings.quota_bytes}
                )
                engine = Engine(load_model(config.model), shared, on_step=self._after_step)
                engine.start()
                self._engines[model] = engine
            return self._engines[model]

    def _after_step(self, kind: str, seconds: float) -> None:
        if kind == "prefill":
            for visit in list(self._visits.values()):
                visit.after_step()

    # -- visitors --------------------------------------------------------------------------------

    def visit(self, page: str) -> Visit:
        """The visitor behind a page; a new one the first time.

        Raises:
            DemoError: There are too many visitors.
        """
        with self._lock:
            found = self._visits.get(page)
            if page in self._gone:
                raise DemoError("This page was left; please load it again.")
            if found is None:
                if len(self._visits) >= self.settings.max_visitors:
                    raise DemoError(
                        f"{len(self._visits)} visitors are here already; try again when one left."
                    )
                found = self._visits[page] = Visit(self, secrets.token_urlsafe(12))
            found.last_seen_s = time.monotonic()
            return found

    def leave(self, page: str) -> None:
        """A page seems to be gone: unless it calls again, everything that belongs to it ends."""
        visit = self._visits.get(page)
        if visit is not None:
            visit.left_s = time.monotonic()

    def end(self, page: str) -> None:
        """End everything that belongs to a page, now."""
        with self._lock:
            visit = self._visits.pop(page, None)
            self._gone.append(page)
        if visit is not None:
            visit.close()

    def settle(self, grace_s: float = GRACE_S) -> None:
        """End the visits of pages that left and did not call again."""
        now_s = time.monotonic()
        for page, visit in list(self._visits.items()):
            if visit.left_s is None:
                continue
            if visit.last_seen_s > visit.left_s + STRAY_S:
                visit.left_s = None
            elif now_s - visit.left_s > grace_s:
                self.end(page)

    @property
    def num_visitors(self) -> int:
        """Pages that are open."""
        return len(self._visits)

    def clip(self, token: str) -> Path | None:
        """The film behind a random name."""
        found = (visit.film.find(token) for visit in list(self._visits.values()))
        return next((path for path in found if path is not None), None)

    # -- saved memories --------------------------------------------------------------------------

    def saved(self) -> list[str]:
        """Names of saved memories."""
        return sorted(path.parent.name for path in self.saved_root.glob("[!.]*/memory"))

    def take_name(self, name: str, *, exists: bool = False) -> bool:
        """Claim a name; False: somebody has it, or (unless it should) it exists."""
        with self._lock:
            is_taken = name in self._names or (self.saved_root / name).exists() is not exists
            if not is_taken:
                self._names.add(name)
            return not is_taken

    def free_name(self, name: str) -> None:
        """Give a name back."""
        with self._lock:
            self._names.discard(name)

    # -- room ------------------------------------------------------------------------------------

    def used_bytes(self) -> int:
        """Bytes of uploads, clips and memories."""
        at_s, total = self._counted
        if time.monotonic() - at_s > COUNT_S:
            total = used_bytes(self.saved_root, self.uploads_root)
            self._counted = time.monotonic(), total
        return total

    def may_upload(self, num_bytes: int) -> str:
        """A sentence if an upload of this size is refused, else an empty text."""
        most = self.settings.max_upload_bytes
        # A form adds some bytes to the file; the exact size is checked once it is there.
        if num_bytes > most + 2**20:
            return f"This file is larger than the {most // 2**20} MiB that are taken."
        if self.used_bytes() + num_bytes > self.settings.quota_bytes:
            return "There is no room for this file: the disk quota of this page is used up."
        return ""

    def _keep_house(self) -> None:
        cleaned_s = time.monotonic()
        while not self._stopping.wait(LOOK_S):
            try:
                self.settle()
                if time.monotonic() - cleaned_s > HOUSEKEEPING_S:
                    cleaned_s = time.monotonic()
                    self._clean()
            except Exception:  # the next round tries again
                logger.exception("housekeeping failed")

    def _clean(self) -> None:
        remove_leftovers(self.uploads_root)
        oldest_s = time.monotonic() - SILENT_PAGE_S
        for page, visit in list(self._visits.items()):
            if visit.last_seen_s < oldest_s:
                self.end(page)

    def close(self) -> None:
        """End all visits and engines."""
        self._stopping.set()
        for page in list(self._visits):
            self.end(page)
        for engine in self._engines.values():
            engine.stop()
        self._own.close()

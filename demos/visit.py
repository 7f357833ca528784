"""One visitor: a memory of their own, what is being watched, and what was asked.

Knows sessions and the engine; it knows nothing of pages. Every sentence raised here can be shown
as it is.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import shutil
import threading
import time
from collections import deque
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from demos.asking import Asking, Exchange
from demos.choice import Choice, DemoError
from demos.film import Film
from demos.pictures import to_jpeg
from demos.script import Script, Truth
from demos.snapshots import MemoryLog, Snapshot
from demos.uploads import take_upload
from demos.watching import BrowserCamera, OpenSource, Progress, Watching
from hermes_like.errors import HermesError, SegmentUnavailableError, SessionStateError
from hermes_like.records import Answer, Image, Route
from hermes_like.session import StreamSession
from hermes_like.sources import open_source

if TYPE_CHECKING:
    from demos.site import Site
    from hermes_like.engine import Engine

logger = logging.getLogger(__name__)

MAX_EXCHANGES = 12
#: Evidence that is shown with pictures.
MAX_PICTURES = 8
#: A look at the memory costs the engine's thread a few milliseconds, so it is not taken each time.
LOOK_EVERY_S = 0.4
#: How long saving waits for a film that is being written.
FILM_S = 20.0
#: No film takes longer to write.
LONGEST_FILM_S = 600.0
ADDRESS = re.compile(r"(rtsps?|https?)://\S+", re.IGNORECASE)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _-]{0,39}")
ABOUT = "about.json"


class Visit:
    """One visitor.

    Args:
        site: Gives engines, folders and names.
        token: Random and hard to guess; names the folder.
    """

    def __init__(self, site: Site, token: str) -> None:
        self._site, self.token = site, token
        self.choice = Choice(model=site.models()[0])
        self.exchanges: deque[Exchange] = deque(maxlen=MAX_EXCHANGES)
        #: What is remembered, in words; empty: nothing.
        self.label = ""
        #: Under which name the memory is saved; empty: it ends with the visit.
        self.saved_as = ""
        self.last_seen_s = time.monotonic()
        #: When the connection of the page broke; None: it is here.
        self.left_s: float | None = None
        self.camera: BrowserCamera | None = None
        self.film = Film()
        self._made_with = self.choice
        self._folder = self._new_folder()
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._session: StreamSession | None = None
        self._watching: Watching | None = None
        self._asking: Asking | None = None
        self._log: MemoryLog | None = None
        self._looked_s = 0.0
        self._is_stale = False
        self._script: Script | None = None
        self._suggested: tuple[int, dict[str, Truth]] = (-1, {})
        self._is_closed = False

    def _new_folder(self) -> Path:
        """Every memory has a folder of its own: the last one may still be going away."""
        return self._site.visits_root / f"{self.token}-{secrets.token_hex(4)}"

    # -- watching --------------------------------------------------------------------------------

    def watch_scenario(self, name: str, reference: str) -> None:
        """Watch a built-in scenario, and write a film of it meanwhile."""
        script = Script(reference)
        self._begin(name, lambda config: open_source(reference, config))
        self._script = script
        self.film.write(script.write_clip, self._folder)

    def watch_upload(self, upload: Path) -> None:
        """Watch a file that was uploaded; the original goes to the model.

        Raises:
            SourceOpenError: It is no video, or too large.
        """
        config = self._site.config(self.choice.model).source
        self._site.engine(self.choice.model)
        # Taken over before the old memory goes: a refused file changes nothing.
        waiting = self._new_folder()
        try:
            clip = take_upload(upload, waiting, self._site.settings.max_upload_bytes, config)
            self._end_memory()
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            place = clip.replace(self._folder / clip.name)
        finally:
            shutil.rmtree(waiting, ignore_errors=True)
        self._begin(upload.name, lambda of: open_source(place, of), is_fresh=True)
        self.film.show(place)

    def watch_camera(self) -> None:
        """Watch what the visitor's browser sends to :attr:`camera`."""
        camera = BrowserCamera()
        self._begin("Webcam", lambda config: camera, read_ahead_frames=1)
        self.camera = camera

    def watch_address(self, address: str) -> None:
        """Watch a camera on the network.

        Raises:
            DemoError: It is no address of a camera.
            SourceError: It cannot be opened.
        """
        address = address.strip()
        # Nothing but the network: a path would let visitors read files of this machine.
        if not ADDRESS.fullmatch(address):
            raise DemoError(
                "Expected an address that begins with rtsp://, rtsps://, http:// or https://."
            )
        with open_source(address) as source:
            name = source.name
        self._begin(name, lambda config: open_source(address, config))

    def _begin(
        self, label: str, opened: OpenSource, *, is_fresh: bool = False, **source: int
    ) -> None:
        """Make a new memory and watch."""
        with self._lock:
            self._require_open()
            # What cannot work is told before the old memory goes.
            engine = self._site.engine(self.choice.model)
            config = self.choice.apply(self._site.config(self.choice.model))
            if not is_fresh:
                self._end_memory()
            self._made_with = self.choice
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            session = StreamSession(
                engine.model, config, name=label, folder=self._folder / "memory"
            )
            self._seat(engine, session)
            self.label = label
            self._watching = Watching(
                self.token,
                engine,
                opened,
                config.source.model_copy(update=source),
                as_it_plays=self.choice.as_it_plays,
            )
            self._watching.start()

    def _seat(self, engine: Engine, session: StreamSession) -> None:
        try:
            engine.add(self.token, session)
        except HermesError:
            session.close(save=False)
            raise
        self._engine, self._session = engine, session
        self._log = MemoryLog(session)

    def pause(self) -> None:
        """Stop taking frames for a while."""
        if self._watching is not None:
            self._watching.pause()

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        if self._watching is not None:
            self._watching.resume()

    def stop(self) -> None:
        """Let go of the source; the memory stays and can be asked."""
        if self._watching is not None:
            self._watching.stop()

    def progress(self) -> Progress | None:
        """How far watching is; None: nothing is being watched."""
        progress = None if self._watching is None else self._watching.progress()
        failure = None
        if self._engine is not None and self.token in self._engine.names:
            failure = self._engine.failure(self.token)
        if progress is not None and failure is not None:
            return replace(progress, state="failed", text=str(failure))
        return progress

    @property
    def has_memory(self) -> bool:
        """Whether there is something to ask about."""
        return self._session is not None

    @property
    def newest_picture(self) -> Image | None:
        """The newest picture that was handed over."""
        return None if self._watching is None else self._watching.newest

    @property
    def is_live(self) -> bool:
        """Whether a camera is being watched."""
        return self._watching is not None and self._watching.is_live

    def make_preview(self) -> None:
        """Have the film written again, since the visitor's browser cannot play it."""
        self.film.make_preview(self._folder)

    # -- asking ----------------------------------------------------------------------------------

    def ask(self, question: str, route: Route | None) -> Asking:
        """Begin to answer.

        Raises:
            DemoError: There is nothing to ask about, or an answer is still on its way.
        """
        question = question.strip()
        with self._lock:
            self._require_open()
            engine, session = self._engine, self._session
            if engine is None or session is None:
                raise DemoError("Nothing has been watched yet: press Watch first.")
            if not question:
                raise DemoError("Type a question first.")
            if self._asking is not None and self._asking.is_running:
                raise DemoError("One question at a time: the last one is still being answered.")
            exchange = Exchange(question, route)
            truth = self._truth(question)
            if truth is not None:
                exchange.truth, exchange.shown = truth.answer, truth.shown
            asking = Asking(
                exchange,
                lambda told: engine.ask_stream(self.token, question, route=route, on_progress=told),
                lambda answer: self._add_pictures(exchange, answer),
            )
            self.exchanges.appendleft(exchange)
            self._asking = asking
            asking.begin()
        return asking

    def stop_answer(self) -> bool:
        """End the answer that is on its way; whether it has ended."""
        return self._asking is None or self._asking.stop()

    @property
    def is_answering(self) -> bool:
        """Whether an answer is on its way."""
        return self._asking is not None and self._asking.is_running

    def _add_pictures(self, exchange: Exchange, answer: Answer) -> None:
        exchange.pictures = tuple(
            self._picture(e.keyframe, e.start_s, e.end_s) for e in answer.evidence[:MAX_PICTURES]
        )

    def _picture(self, keyframe: str | None, start_s: float, end_s: float) -> bytes:
        """What a moment looked like; empty: nobody knows any more."""
        watching, session = self._watching, self._session
        image = None if watching is None else watching.picture(start_s, max(end_s, start_s + 1e-6))
        if image is None and keyframe is not None and session is not None:
            try:
                image = session.keyframe(keyframe)
            except (SegmentUnavailableError, SessionStateError):
                return b""
        return b"" if image is None else to_jpeg(image)

    def suggestions(self) -> list[str]:
        """Questions about the script so far; empty where no script is known."""
        return list(self._suggest()[1])

    def _suggest(self) -> tuple[int, dict[str, Truth]]:
        script, progress = self._script, self.progress()
        if script is None or progress is None or not progress.num_frames:
            return (-1, {})
        # While frames fly by, new questions every few seconds of the stream are enough.
        count = progress.num_frames if progress.state != "watching" else progress.num_frames & ~15
        if count and count != self._suggested[0]:
            self._suggested = count, script.suggest(count)
        return self._suggested

    def _truth(self, question: str) -> Truth | None:
        """The truth is told only if the stream stands where the question was drawn."""
        progress = self.progress()
        count, found = self._suggest()
        if progress is None or progress.state == "watching" or count != progress.num_frames:
            return None
        return found.get(question)

    # -- looking ---------------------------------------------------------------------------------

    def after_step(self) -> None:
        """Look at the memory; called in the engine's thread, between two steps."""
        self._is_stale = True
        if self._log is not None and time.monotonic() - self._looked_s > LOOK_EVERY_S:
            self._look()

    def snapshot(self) -> Snapshot | None:
        """The memory as it was seen last; None: there is none."""
        progress = self.progress()
        is_idle = progress is None or progress.state not in ("opening", "watching")
        with self._lock:
            log = self._log
            if log is not None and (log.newest is None or self._is_stale) and is_idle:
                self._look()
        return None if log is None else log.newest

    def _look(self) -> None:
        log, session = self._log, self._session
        if log is None or session is None:
            return
        self._is_stale = False
        try:
            log.note()
        except (KeyError, IndexError, RuntimeError) as error:
            # The memory was erased or closed under the look; the next one will see it whole.
            logger.debug("memory not looked at: %s", error)
            self._is_stale = True
        self._looked_s = time.monotonic()

    # -- keeping and forgetting ------------------------------------------------------------------

    def erase(self, start_s: float, end_s: float) -> tuple[float, float]:
        """Erase a stretch of stream time for good, and return what was erased.

        Raises:
            DemoError: There is no memory, or the stretch is empty.
        """
        session = self._session
        if session is None:
            raise DemoError("There is nothing to erase yet.")
        if not end_s > start_s:
            raise DemoError("The end must lie behind the beginning.")
        self.stop_answer()
        erased = session.erase(start_s, end_s)
        # Answers given before may quote, and show, what is gone.
        self.exchanges.clear()
        if self._watching is not None:
            self._watching.forget(*erased)
        self._is_stale = True
        return erased

    def save(self, name: str) -> None:
        """Keep the memory under a name, beyond this visit and a restart.

        Raises:
            DemoError: The name cannot be used.
        """
        with self._lock:
            session = self._session
            if session is None:
                raise DemoError("There is no memory to save yet.")
            name = _checked(name)
            if self.saved_as == name:
                session.save()
                return
            if self.saved_as:
                raise DemoError(f"This memory is saved as {self.saved_as!r} already.")
            if not self._site.take_name(name):
                raise DemoError(f"There is a memory called {name!r} already; take another name.")
            try:
                self._move(self._site.saved_root / name)
            except BaseException:
                self._site.free_name(name)
                raise
            self.saved_as = name

    def _move(self, target: Path) -> None:
        """Take the memory to another folder of the same disk; watching goes on there."""
        engine, session = self._engine, self._session
        assert engine is not None
        assert session is not None
        progress = self.progress()
        is_watching = progress is not None and not progress.is_over
        if is_watching:
            raise DemoError("Stop watching first, then save.")
        if not self.film.wait(FILM_S):
            raise DemoError("The film is still being prepared; save again in a moment.")
        self.stop_answer()
        engine.remove(self.token)
        session.close()
        self._write_about()
        self._folder.rename(target)
        self.film.moved(target)
        self._folder = target
        self._session = None
        opened = StreamSession.open(
            engine.model, target / "memory", session.config, name=session.name
        )
        log = self._log
        self._seat(engine, opened)
        if log is not None and self._log is not None:
            self._log.newest = log.newest
        self._is_stale = True

    def _write_about(self) -> None:
        clip = None if self.film.path is None else self.film.path.name
        about = {"label": self.label, "choice": asdict(self._made_with), "clip": clip}
        (self._folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")

    def open(self, name: str) -> None:
        """Go on with a saved memory.

        Raises:
            DemoError: There is none of that name, or somebody has it open.
            HermesError: It cannot be read.
        """
        name = _checked(name)
        folder = self._site.saved_root / name
        if not (folder / "memory").is_dir():
            raise DemoError(f"There is no saved memory called {name!r}.")
        with self._lock:
            self._require_open()
            if self.saved_as == name:
                return
            self._site.settle(grace_s=0.0)  # whoever just left does not have it open any more
            if not self._site.take_name(name, exists=True):
                raise DemoError(f"{name!r} is open in another window; close it there first.")
            try:
                self._end_memory()
                self._open(folder)
            except BaseException:
                self._site.free_name(name)
                raise
            self.saved_as = name

    def _open(self, folder: Path) -> None:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        self.choice = self._made_with = Choice(**about["choice"])
        if self.choice.model not in self._site.models():
            raise DemoError(f"This memory was made with {self.choice.model!r}, which is not here.")
        engine = self._site.engine(self.choice.model)
        config = self.choice.apply(self._site.config(self.choice.model))
        session = StreamSession.open(engine.model, folder / "memory", config)
        self._seat(engine, session)
        self._folder, self.label = folder, str(about["label"])
        if about["clip"]:
            self.film.show(folder / Path(str(about["clip"])).name)
        self._is_stale = True

    # -- the end ---------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self._is_closed:
            raise DemoError("This page was left; please load it again.")

    def close(self) -> None:
        """End everything that belongs to the visitor. Safe to call twice."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._end_memory()

    def _end_memory(self) -> None:
        """Let go of source, answer, memory and film; what was not saved is gone."""
        with self._lock:
            self.stop_answer()
            if self._watching is not None:
                self._watching.stop()
            engine, session = self._engine, self._session
            if engine is not None and self.token in engine.names:
                engine.remove(self.token)
            if session is not None:
                session.close(save=bool(self.saved_as))
            film, self.film = self.film, Film()
            film.end()
            if self.saved_as:
                self._site.free_name(self.saved_as)
            else:
                _remove(self._folder, film)
            self._folder = self._new_folder()
            self._engine = self._session = self._log = None
            self._watching = self._asking = self._script = self.camera = None
            self.saved_as = self.label = ""
            self._suggested = (-1, {})
            self.exchanges.clear()


def _remove(folder: Path, film: Film) -> None:
    """Remove a folder, and again when a film that is being written into it has ended."""
    shutil.rmtree(folder, ignore_errors=True)
    if film.wait(0.0):
        return

    def later() -> None:
        film.wait(LONGEST_FILM_S)
        shutil.rmtree(folder, ignore_errors=True)

    threading.Thread(target=later, name="film removal", daemon=True).start()


def _checked(name: str) -> str:
    name = name.strip()
    if not NAME.fullmatch(name):
        raise DemoError("A name has 1 to 40 letters, digits, spaces, - or _, and no other signs.")
    return name

"""Watching with a memory folder: what is known is not watched again, the rest is gone on with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hermes_like.cli.folder import Known
from hermes_like.cli.note import NOTE_NAME, Note, Watched
from hermes_like.cli.output import clock
from hermes_like.config import HermesConfig
from hermes_like.errors import ConfigError, StorageError
from hermes_like.records import Frame
from hermes_like.sources.base import FrameSource, Wanted

if TYPE_CHECKING:
    from hermes_like.long_term import LongTermMemory
    from hermes_like.models.base import ModelAdapter
    from hermes_like.session import StreamSession

Progress = Callable[[Iterator[Frame], float | None], Iterator[Frame]]


class LaterFrames(FrameSource):
    """Frames of a source from a stream time on; earlier ones are decoded, but never converted.

    Args:
        source: An open source that has not been iterated.
        from_s: Stream time of the first frame to deliver.
    """

    def __init__(self, source: FrameSource, from_s: float) -> None:
        self.source, self.from_s, self.name = source, from_s, source.name

    def __iter__(self) -> Iterator[Frame]:
        return self.select(lambda pts_s: True)

    def select(self, wanted: Wanted) -> Iterator[Frame]:
        """Yield the wanted frames from the time on; ``wanted`` is asked about the others too."""
        # The sampler must see every frame, so that it picks the same ones as without a break.
        return self.source.select(lambda pts_s: wanted(pts_s) and pts_s >= self.from_s)

    def close(self) -> None:
        """Close the source."""
        self.source.close()

    @property
    def duration_s(self) -> float | None:
        """Length in seconds."""
        return self.source.duration_s

    @property
    def num_dropped(self) -> int:
        """Frames that could not be delivered."""
        return self.source.num_dropped

    @property
    def warnings(self) -> tuple[str, ...]:
        """Plain sentences about what could not be read."""
        return self.source.warnings


@contextmanager
def resuming(
    video: str, config: HermesConfig, past: Known, progress: Progress
) -> Iterator[tuple[StreamSession, Iterator[Frame]]]:
    """Open a video and its memory.

    Args:
        video: What the user named.
        config: The whole configuration.
        past: The memory, made if need be.
        progress: Shows how far the frames are, given the length in seconds.

    Yields:
        The session, and the sampled frames that it has not seen; none if it saw them all.

    Raises:
        ConfigError: The folder holds another video, or something else than a memory.
    """
    from hermes_like.frames import sampled
    from hermes_like.models import load_model
    from hermes_like.sources import open_source

    if not config.store.enabled or not config.store.disk_bytes:
        raise ConfigError("--memory: expected store.enabled true and store.disk_bytes above 0")
    folder, note = past.folder, past.note
    if note is not None:
        config = _with_start_time(config, note.watched)
    now = Watched.of(video, config.source)
    if note is not None:
        note.watched.require_same(now, folder)
    with ExitStack() as stack:
        source = None
        if note is None or not note.watched.is_complete:
            # Before the model, because opening it is quick and fails more often.
            source = stack.enter_context(open_source(video, config.source))
        model = load_model(config.model)
        session = stack.enter_context(_session(model, config, video, past))
        before = _note_of(session)
        if before is not None:
            before.require_same(now, folder)
        if before is not None and _has_all(session, before):
            _say(f"{folder}: {video} was watched to its end; nothing is watched again")
            yield session, iter(())
            return
        if source is None:
            source = stack.enter_context(open_source(video, config.source))
        seen_s = session.stats().stream_s if session.stats().num_frames else None
        if before is None and seen_s is not None:
            raise ConfigError(
                f"{folder}: remembers a stream, and not a video that a command watched; "
                "ask it with 'hermes-like memory ask'"
            )
        if seen_s is not None:
            _say(f"{folder}: {clock(seen_s)} of {video} are there; watching goes on from there")
            source = LaterFrames(source, seen_s)
        feed = stack.enter_context(sampled(source, config.source))
        _put_note(session, Note.of(config, now))
        yield session, _rest(session, progress(feed, source.duration_s), seen_s, config, now)
        for warning in feed.warnings:
            _say(f"warning: {warning}")


@contextmanager
def _session(
    model: ModelAdapter, config: HermesConfig, video: str, past: Known
) -> Iterator[StreamSession]:
    """The session; its state is written again only where frames came."""
    from hermes_like.session import StreamSession

    session = StreamSession.open(model, past.folder, config, name=Path(video).name, key=past.key)
    num_frames = session.stats().num_frames
    is_new = True
    try:
        yield session
        is_new = session.stats().num_frames > num_frames
    finally:
        session.close(save=is_new)


def _rest(
    session: StreamSession,
    frames: Iterator[Frame],
    seen_s: float | None,
    config: HermesConfig,
    now: Watched,
) -> Iterator[Frame]:
    """Frames the session has not seen; when they are through, that is noted."""
    for frame in frames:
        # The last one seen comes once more, as the one that duplicates are compared with.
        if seen_s is None or frame.pts_s > seen_s:
            yield frame
    session.save()
    num_frames = session.stats().num_frames
    _put_note(session, Note.of(config, replace(now, is_complete=True, num_frames=num_frames)))


def _with_start_time(config: HermesConfig, watched: Watched) -> HermesConfig:
    """The start time of the first call, where none is given now."""
    start = watched.sampling.get("start_time")
    if start is None or config.source.start_time is not None:
        return config
    source = config.source.model_copy(update={"start_time": datetime.fromisoformat(start)})
    return config.model_copy(update={"source": source})


def require_long_term(session: StreamSession) -> LongTermMemory:
    """The memory behind a session that was opened on a folder."""
    assert session.long_term is not None, "the configuration was checked for it"
    return session.long_term


def _note_of(session: StreamSession) -> Watched | None:
    data = require_long_term(session).get_note(NOTE_NAME)
    return None if data is None else Note.from_bytes(data).watched


def _put_note(session: StreamSession, note: Note) -> None:
    try:
        require_long_term(session).put_note(NOTE_NAME, note.to_bytes())
    except StorageError as error:
        _say(f"warning: the video will be watched again next time: {error}")


def _has_all(session: StreamSession, watched: Watched) -> bool:
    return watched.is_complete and session.stats().num_frames >= watched.num_frames


def _say(text: str) -> None:
    typer.echo(text, err=True)

"""Watching a video from the command line: open everything, show progress, hand over frames."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from tqdm import tqdm

from hermes_like.config import HermesConfig
from hermes_like.records import Frame

if TYPE_CHECKING:
    from hermes_like.cli.folder import Known
    from hermes_like.session import StreamSession


@contextmanager
def watching(
    video: str,
    config: HermesConfig,
    *,
    past: Known | None = None,
    show_progress: bool | None = None,
) -> Iterator[tuple[StreamSession, Iterator[Frame]]]:
    """Open a video and a session on it.

    Args:
        video: What the user named.
        config: The whole configuration.
        past: Folder in which the past is kept; None: in RAM, until the end.
        show_progress: Progress bar on stderr; None: if stderr is a terminal.

    Yields:
        The session, and the sampled frames still to be observed.
    """
    from hermes_like.cli.resuming import resuming
    from hermes_like.frames import sampled
    from hermes_like.models import load_model
    from hermes_like.session import StreamSession
    from hermes_like.sources import open_source

    def progress(frames: Iterator[Frame], duration_s: float | None) -> Iterator[Frame]:
        return _with_progress(frames, duration_s, show_progress)

    if past is not None:
        with resuming(video, config, past, progress) as both:
            yield both
        return
    with open_source(video, config.source) as source:
        model = load_model(config.model)
        with (
            StreamSession(model, config, name=Path(video).name) as session,
            sampled(source, config.source) as feed,
        ):
            yield session, progress(feed, source.duration_s)
            for warning in feed.warnings:
                typer.echo(f"warning: {warning}", err=True)


def observe_all(
    session: StreamSession,
    frames: Iterator[Frame],
    before: Callable[[Frame], None] = lambda frame: None,
    after: Callable[[Frame], None] = lambda frame: None,
) -> None:
    """Show every frame to the session, with a call before and after each."""
    for frame in frames:
        before(frame)
        session.observe(frame)
        after(frame)


@contextmanager
def scan_progress() -> Iterator[Callable[[int, int], None]]:
    """Show on stderr how far a scan is, if stderr is a terminal.

    Yields:
        What to call with the frames asked about, and with how many there are.
    """
    with tqdm(
        desc="scanning", unit="frames", disable=not sys.stderr.isatty(), leave=False, delay=0.5
    ) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show


def _with_progress(
    frames: Iterator[Frame], duration_s: float | None, show: bool | None
) -> Iterator[Frame]:
    disable = None if show is None else not show
    layout = (
        "{desc}: {percentage:3.0f}% |{bar:30}| {n:.0f}/{total:.0f} s of video{postfix} [{elapsed}]"
    )
    with tqdm(
        total=duration_s,
        desc="watching",
        unit="s",
        disable=disable,
        bar_format=layout if duration_s else None,
        leave=False,
        mininterval=0.1 if sys.stderr.isatty() else 5.0,
    ) as bar:
        for count, frame in enumerate(frames, start=1):
            yield frame
            bar.set_postfix_str(f"{count} frames", refresh=False)
            bar.update(frame.pts_s - bar.n)

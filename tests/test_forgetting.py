"""Forgetting while a stream goes on: the open segment, pending frames, silence, a full disk."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hermes_like.config import SourceConfig
from hermes_like.errors import MemoryLockedError
from hermes_like.frames import FrameFeed
from hermes_like.models import load_model
from hermes_like.records import Frame
from hermes_like.session import StreamSession
from hermes_like.sources.base import FrameSource
from hermes_like.tiers import failpoints
from hermes_like.tiers.destroy import destroy_memory
from hermes_like.timeline import SegmentTimes
from tests.test_long_term import frames
from tests.test_privacy import (
    LEFT,
    config_of,
    found,
    haystack,
    pieces,
    planted,
    traces,
    watch_and_trace,
    with_other_left,
)
from tests.tiers.disk_tools import open_small


@pytest.fixture(scope="module")
def sprites():
    return load_model("sprites")


class Frames(FrameSource):
    """Frames that are there already."""

    name = "frames"

    def __init__(self, frames: list[Frame]) -> None:
        self.frames = frames

    def __iter__(self) -> Iterator[Frame]:
        return iter(self.frames)

    def close(self) -> None:
        """Nothing is held."""


def segments(session: StreamSession) -> list[SegmentTimes]:
    assert session.long_term is not None
    return session.long_term.timeline.between(None, None)


# -- the open segment ------------------------------------------------------------------------------


@pytest.mark.parametrize("prefill_frames", [1, 2, 4])
@pytest.mark.parametrize("num_open", [1, 2, 3])
def test_an_erased_open_segment_is_stored_from_behind_the_gap(
    sprites, tmp_path: Path, prefill_frames: int, num_open: int
) -> None:
    """Its newest frame is erased, which is on the device, or waits for prefill."""
    config = config_of(prefill_frames=prefill_frames)
    stream, end = list(frames()), 16 + num_open
    is_waiting = num_open % prefill_frames > 0
    folder = tmp_path / "m"
    with StreamSession(sprites, config, folder=folder) as session:
        for frame in stream[:end]:
            session.observe(frame)
        first_s, _ = session.erase(end - 0.5, end)
        assert first_s == (end - 1 if is_waiting else 16)
        assert not is_waiting or not session._open.frames[-1].image.any()
        for frame in stream[end:32]:
            session.observe(frame)
        stored = segments(session)
        told = session.ask("what was visible ?", since_s=first_s, until_s=end - 0.1)
        assert is_waiting or told.status == "no_footage"  # what waited is a black frame
        session.memory.check()
    assert stored[4].frames == (range(16, 20) if is_waiting else range(end, 20))
    assert [segment.segment_id for segment in stored] == list(range(8))
    with StreamSession.open(sprites, folder, config) as session:
        assert segments(session) == stored
        for frame in stream[32:40]:
            session.observe(frame)
        assert session.stats().num_segments == 10
        session.memory.check()


def test_an_open_segment_that_is_erased_whole_is_not_stored(sprites, tmp_path: Path) -> None:
    config = config_of(thin_threshold=0.9)
    stream = list(frames())
    closed: list[int] = []
    with StreamSession(
        sprites, config, folder=tmp_path / "m", on_segment=lambda s: closed.append(s.segment_id)
    ) as session:
        for frame in stream[:19]:
            session.observe(frame)
        before = [segment.segment_id for segment in segments(session)]
        assert session.erase(17.0, 18.0) == (16.0, 18.0)
        assert not {16, 17} & session.memory.resident_frames()
        session.observe(stream[19])
        assert [s.frames for s in segments(session)][-1] == range(18, 20)
        for frame in stream[20:23]:
            session.observe(frame)
        session.erase(20.0, 30.0)
        session.observe(replace(stream[23], pts_s=23.0))
        session.erase(20.0, 30.0)
        for frame in stream[24:28]:
            session.observe(frame)
        assert before == [0, 1, 2, 3]
        assert closed == [0, 1, 2, 3, 4, 5, 6]
        session.memory.check()


def test_text_only_can_be_saved_after_its_newest_frames_were_erased(
    sprites, tmp_path: Path
) -> None:
    config = config_of(prefill_frames=2, keep_images=False)
    stream = list(frames())
    with StreamSession(sprites, config, folder=tmp_path / "m") as session:
        for frame in stream[:21]:
            session.observe(frame)
        session.erase(18.0, 20.5)
        session.save()
    with StreamSession.open(sprites, tmp_path / "m", config) as session:
        assert session.stats().num_frames == 20
        for frame in stream[20:40]:
            session.observe(frame)
        assert session.ask("what was visible ?", since_s=18.0, until_s=19.0).status == "no_footage"
        session.memory.check()


# -- retention -------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefill_frames", [1, 4])
def test_a_silent_stream_forgets_by_its_age(sprites, tmp_path: Path, prefill_frames: int) -> None:
    config = config_of(retention_s=100.0, prefill_frames=prefill_frames)
    stream = planted(39)
    folder = tmp_path / "m"
    with StreamSession(sprites, config, folder=folder) as session:
        known = watch_and_trace(session, stream, folder, config.store.disk_bytes)
        assert not session.enforce_retention()
        assert not session.enforce_retention(50.0)
        assert len(segments(session)) == 9
        assert session.enforce_retention(118.5)
        assert [s.segment_id for s in segments(session)] == [4, 5, 6, 7, 8]
        assert found(folder, known, known) == [4, 5, 6, 7, 8]
        assert min(session.memory.resident_frames()) >= 18
        session.memory.check()
        assert session.enforce_retention(1000.0)
        assert not session.memory.resident_frames()
        assert not found(folder, known, known)
        session.save()
        hay = haystack(folder)
        assert not any(piece in hay for frame in stream for piece in pieces(frame))
        assert session.ask("what was visible ?", since_s=0.0, until_s=38.0).status == "no_footage"
        for frame in list(frames())[40:60]:
            session.observe(replace(frame, pts_s=frame.pts_s + 1000.0))
        assert segments(session)[-1].end_frame == 56
        session.memory.check()
    with StreamSession.open(sprites, folder, config) as session:
        assert session.enforce_retention(5000.0)
        assert not segments(session)


def test_tokens_of_what_a_cap_took_are_forgotten_too(sprites) -> None:
    """Also where nothing is kept off the device at all."""
    for store in ({"host_bytes": 1_790_000, "keyframe_bytes": 0}, {"enabled": False}):
        config = config_of(retention_s=60.0, **store)
        with StreamSession(sprites, config) as session:
            for frame in frames():
                session.observe(frame)
                if frame.index % 10 == 9:
                    oldest = min(session.memory.resident_frames())
                    assert frame.index - oldest < 60 + 17 * 4
            assert session.enforce_retention(frame.pts_s + 30.0)
            assert min(session.memory.resident_frames()) >= frame.index - 30
            assert not session.enforce_retention(frame.pts_s + 30.0)
            session.memory.check()


def test_without_retention_nothing_is_forgotten(sprites) -> None:
    with StreamSession(sprites, config_of()) as session:
        for frame in list(frames())[:8]:
            session.observe(frame)
        assert not session.enforce_retention(1e9)
        assert len(segments(session)) == 2


def test_on_a_full_disk_the_old_checkpoint_does_not_outlive_an_erasure(
    sprites, tmp_path: Path
) -> None:
    config = config_of()
    folder = tmp_path / "m"
    with StreamSession(sprites, config, folder=folder) as session:
        for frame in list(frames())[:22]:
            session.observe(frame)
        session.save()
        slots = session.memory.cache.layers[0]
        of = slots.ids // session.memory.tokens_per_frame
        key = slots.raw_keys[0, 0, torch.nonzero(of == 20)[0, 0]].numpy().tobytes()
        assert key in haystack(folder)
        failpoints.arm("blob.before_rename=enospc")
        try:
            session.erase(20.0, 21.0)
        finally:
            failpoints.arm("")
        assert key not in haystack(folder)
    with StreamSession.open(sprites, folder, config) as session:
        assert session.stats().num_frames == 22


# -- what is hidden decides nothing ----------------------------------------------------------------


def test_duplicates_are_told_by_what_may_be_seen() -> None:
    still = [Frame(np.full((96, 96, 3), 90, np.uint8), i, float(i)) for i in range(6)]
    config = SourceConfig(sample_fps=None, skip_duplicates=True, masks=(LEFT,))
    with FrameFeed(Frames(list(with_other_left(iter(still)))), config) as feed:
        seen = list(feed)
    assert [frame.index for frame in seen] == [0]
    assert not seen[0].image[:, :39].any()


def test_pictures_are_masked_where_tokens_come_from_elsewhere(sprites) -> None:
    with StreamSession(sprites, config_of(masks=(LEFT,))) as session:
        for frame in list(frames())[:8]:
            tokens = sprites.embed_frames([session.prepare(frame).image])[0]
            session.observe(frame, tokens)
        assert session.keyframe("1")[:, :32].max() == 0
        assert traces(session, 1)


# -- opened while it is destroyed ------------------------------------------------------------------


def test_a_lock_that_was_removed_meanwhile_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the opening of the lock file and the lock, a whole destruction takes place."""
    with open_small(tmp_path / "m"):
        pass
    whole = fcntl.flock

    def late(fd: int, mode: int) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(fcntl, "flock", whole)
            destroy_memory(tmp_path / "m")
        whole(fd, mode)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(MemoryLockedError, match="is removing the memory"):
        open_small(tmp_path / "m")
    monkeypatch.setattr(fcntl, "flock", whole)
    assert not list(tmp_path.iterdir())
    with open_small(tmp_path / "m") as store:
        assert not store.segments.heads()

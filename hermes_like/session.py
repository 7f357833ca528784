"""The life of one stream: the only place that knows the order of the stations."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from torch import Tensor

from hermes_like.answer import Answerer, AnswerStream
from hermes_like.asking import Desk
from hermes_like.config import HermesConfig
from hermes_like.errors import SessionStateError, StorageError
from hermes_like.long_term import LongTermMemory
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.provenance import FrameTable
from hermes_like.memory.segment import Segment, chain_key
from hermes_like.models.base import ModelAdapter
from hermes_like.open_segment import OpenSegment
from hermes_like.opening import no_collection, open_long_term
from hermes_like.policies import POLICIES
from hermes_like.records import Answer, Frame, Image, Route, SessionStats
from hermes_like.resume import (
    SessionState,
    device_settings,
    from_bytes,
    replay,
    restore_device,
    to_bytes,
)
from hermes_like.retrieval.clock import StreamClock
from hermes_like.tiers.keyframes import choose_keyframes
from hermes_like.veil import Veil

logger = logging.getLogger(__name__)

__all__ = ["Segment", "StreamSession"]

#: Segments that outlive ``store.retention_s`` before they are erased together.
RETENTION_BATCH = 16
#: Stretches without sight that are remembered with their reasons; older ones lose the reason.
MAX_BLIND_SPANS = 4096


class StreamSession:
    """One video stream, remembered under a budget and open to questions at any moment.

    Args:
        model: From :func:`hermes_like.models.load_model`; may be shared between sessions.
        config: The whole configuration; ``config.model`` is not read here.
        name: Name of the stream, reported with answers.
        folder: Where the past is kept beyond this process; None: in RAM only. A folder that holds
            a memory already is opened with :meth:`open`.
        key: 32 bytes; then the folder is encrypted.
        on_segment: Called with every closed segment, before compaction touches it.

    Raises:
        BudgetError: ``memory.device_tokens`` is too small for the model and the reserves.
        ConfigError: Unknown policy, or caps that cannot work.
        StorageError: The folder cannot be used, or holds a memory already.

    Example:
        >>> with StreamSession(load_model("sprites")) as session:
        ...     for frame in frames:
        ...         session.observe(frame)
        ...     print(session.ask("what is visible now ?").text)
    """

    def __init__(
        self,
        model: ModelAdapter,
        config: HermesConfig | None = None,
        *,
        name: str = "stream",
        folder: Path | str | None = None,
        key: bytes | None = None,
        on_segment: Callable[[Segment], None] | None = None,
    ) -> None:
        self._begin(model, config, name, None if folder is None else Path(folder), key, on_segment)
        if self.long_term is not None and self.long_term.holds_memory:
            self.close(save=False)
            raise StorageError(
                f"{folder}: expected an empty folder, got one that holds a memory; "
                "go on with it through StreamSession.open"
            )

    def _begin(
        self,
        model: ModelAdapter,
        config: HermesConfig | None,
        name: str,
        folder: Path | None,
        key: bytes | None,
        on_segment: Callable[[Segment], None] | None,
    ) -> None:
        self.model, self.config, self.name = model, config or HermesConfig(), name
        store, retrieval = self.config.store, self.config.retrieval
        policy = POLICIES.get(self.config.policy.name)(self.config.policy)
        self.memory = DeviceMemory(
            model,
            policy,
            self.config.memory,
            retrieved_tokens=retrieval.retrieved_tokens if store.enabled else 0,
        )
        self._answerer = Answerer(self.memory, self.config.memory)
        self._on_segment = on_segment
        self._lock = threading.RLock()
        values = self.config.model_dump(mode="json")
        self._state = SessionState(name, device_settings(self.config), config=values)
        self._is_closed = False
        self.long_term: LongTermMemory | None = None
        if store.enabled:
            self.long_term = open_long_term(self.memory, self.config, folder, key)
        self._desk = Desk(
            self.memory,
            self.long_term,
            self._answerer,
            self.config,
            lambda: self._state,
            self._fork,
            self._lock,
        )
        self._veil = Veil(self.config.source.masks, self.config.source.zones)
        keeps_pictures = store.enabled and store.keyframe_bytes and store.keep_images
        self._open = OpenSegment(
            model,
            self.config.memory.segment_frames,
            choose_keyframes(self.config.memory.segment_frames, store.keyframes_per_segment)
            if keeps_pictures
            else (),
            keeps_embeddings=store.enabled and store.thin_threshold is not None,
        )

    @classmethod
    def open(
        cls,
        model: ModelAdapter,
        folder: Path | str,
        config: HermesConfig | None = None,
        *,
        name: str | None = None,
        key: bytes | None = None,
        on_segment: Callable[[Segment], None] | None = None,
    ) -> Self:
        """Go on with the memory in a folder, or begin one there.

        After a clean close the device state is what it was, bit for bit. After a crash it is
        rebuilt from the last checkpoint and the segments written since.

        Raises:
            FingerprintError: The folder was written by another model.
            MemoryLockedError: Another process writes to it.
            StorageError: It cannot be used.
        """
        session = cls.__new__(cls)
        with no_collection():
            session._begin(model, config, name or Path(folder).name, Path(folder), key, on_segment)
            try:
                session._resume(keep_name=name is None)
            except BaseException:
                session.close(save=False)
                raise
        return session

    def _resume(self, *, keep_name: bool) -> None:
        long_term = self._require_long_term()
        data = long_term.get_state()
        if data is not None:
            restored = from_bytes(data)
            state = restored.session
            if state.settings == self._state.settings:
                restore_device(self.memory, restored)
                self._open.put(restored.pending, restored.images)
            else:
                logger.warning(
                    "resume: the device state was made with other settings and is rebuilt"
                )
                state.settings = self._state.settings
            state.config = self._state.config
            self._state = state
            if state.wall_at_zero is not None:
                long_term.zone = datetime.fromisoformat(state.wall_at_zero).tzinfo or UTC
            if keep_name:
                self.name = state.name
            self._state.name = self.name
        replay(self.memory, long_term, self.config.store.checkpoint_segments)
        newest = long_term.timeline.newest
        if newest is None or newest.end_frame <= self._state.num_frames:
            return
        self._open.clear()
        if not self._state.num_frames:
            self._state.first_s = long_term.timeline.first_s
        self._state.num_frames = newest.end_frame
        self._state.num_segments = newest.segment_id + 1
        self._state.last_s = max(self._state.last_s, newest.times_s[-1])

    # -- watching --------------------------------------------------------------------------------

    def prepare(self, frame: Frame) -> Frame:
        """Return a frame as it is seen here: masks and zones of ``source`` painted black.

        Raises:
            ValueError: Wrong shape or number type.
        """
        image = frame.image
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
            raise ValueError(
                f"frame {frame.index}: expected uint8 [H, W, 3], "
                f"got {image.dtype} {list(image.shape)}"
            )
        return self._veil.apply(frame)

    def observe(self, frame: Frame, tokens: Tensor | None = None) -> None:
        """Take in the next frame.

        Args:
            frame: ``image`` uint8 ``[H, W, 3]`` RGB; ``pts_s`` not before the last frame's.
            tokens: Its vision tokens ``[tokens_per_frame, hidden]``, made of :meth:`prepare`'s
                result; None: they are made here. Whoever watches several streams makes them
                together.

        Raises:
            SessionStateError: The session is closed.
            ValueError: Wrong shape or number type, or time runs backwards.
        """
        with self._lock:
            self._require_open()
            self._check_time(frame)
            frame = self.prepare(frame)  # also where tokens came: a picture of it may be kept
            self._note_time(frame)
            self._open.add(frame, tokens, self._state.num_frames)
            self._state.num_frames += 1
            if len(self._open.frames) == self.config.memory.prefill_frames:
                self._prefill_pending()
            if self._state.num_frames % self.config.memory.segment_frames == 0:
                self._close_segment()

    def _note_time(self, frame: Frame) -> None:
        state = self._state
        if not state.num_frames:
            state.first_s = frame.pts_s
        state.last_s = frame.pts_s
        if frame.wall_time is not None:
            zero = frame.wall_time - timedelta(seconds=frame.pts_s)
            state.wall_at_zero = zero.isoformat()
            if self.long_term is not None:
                self.long_term.zone = zero.tzinfo or UTC

    def _check_time(self, frame: Frame) -> None:
        least_s = self._state.last_s if self._state.num_frames else 0.0
        if not frame.pts_s >= least_s:
            raise ValueError(
                f"frame {frame.index}: expected pts_s of at least {least_s}, got {frame.pts_s}"
            )

    def _prefill_pending(self) -> None:
        chunk = self._open.embed(self._state.num_segments)
        if self.long_term is not None:
            key = bytes.fromhex(self._state.content_key)
            self._state.content_key = chain_key(key, self._open.frames).hex()
        self._open.note_prefilled(chunk)
        self.memory.append_frames(chunk.tokens, chunk.records)

    def _close_segment(self) -> None:
        state = self._state
        if self.long_term is not None or self._on_segment is not None:
            key = bytes.fromhex(state.content_key)
            segment = self._open.close(self.memory, state.num_frames, state.num_segments, key)
            if segment is not None and self._on_segment is not None:
                self._on_segment(segment)
            if segment is not None and self.long_term is not None:
                is_whole = len(segment.records) == self.config.memory.segment_frames
                self.long_term.write(segment, self._open.embeddings if is_whole else ())
        self._open.clear()
        state.num_segments += 1
        self.memory.compact()
        self._keep_house()

    def _keep_house(self) -> None:
        """Checkpoints and retention, once per segment."""
        long_term, store = self.long_term, self.config.store
        is_due = self._state.num_segments % store.checkpoint_segments == 0
        if long_term is not None and long_term.has_folder and is_due:
            self._save(long_term)
        self._retain(self._state.last_s, RETENTION_BATCH)

    @property
    def trouble(self) -> str | None:
        """Why nothing can be seen at present, in words; answers say so. None: frames come."""
        return self._desk.trouble

    @trouble.setter
    def trouble(self, reason: str | None) -> None:
        self._desk.trouble = reason

    def note_blind(self, start_s: float, end_s: float, reason: str) -> None:
        """Remember that nothing could be seen for a while, and why; answers will say so.

        Args:
            start_s: Stream time from which on there was nothing to see.
            end_s: Stream time at which frames came again.
            reason: In words that fit behind "there is no footage of it:".
        """
        if not end_s > start_s:
            raise ValueError(f"note_blind: expected end_s after {start_s}, got {end_s}")
        with self._lock:
            self._require_open()
            self._state.blind.append((start_s, end_s, reason))
            del self._state.blind[:-MAX_BLIND_SPANS]
            if self.long_term is not None and self.long_term.has_folder:
                self._save(self.long_term)  # the next checkpoint may be far: no frames come

    # -- asking ----------------------------------------------------------------------------------

    def ask(
        self,
        question: str,
        *,
        prompt: str | None = None,
        route: Route | None = None,
        since_s: float | None = None,
        until_s: float | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        now_s: float | None = None,
        deadline_s: float | None = None,
        **overrides: Any,
    ) -> Answer:
        """Answer a question about everything seen so far.

        Args:
            question: In words.
            prompt: What the model is asked in its place: the question with options or instructions,
                say. Where to look is still decided by the question alone, and there is no scan,
                whose answer would not have the form that the prompt asks for.
            route: Where to look, whatever the words say: ``now``, ``recall``, ``time``, ``scan``.
            since_s: Look at nothing before this stream time.
            until_s: Look at nothing after this stream time.
            on_progress: Told, during a scan, how many frames were asked about and of how many.
            now_s: Stream time of the present, from which "ten minutes ago" counts; None: that of
                the newest frame. A camera that went silent has a present of its own.
            deadline_s: Seconds until the first text should come: less of the past is brought back
                rather than the deadline missed. None: as ``retrieval`` says.
            overrides: Fields of :class:`~hermes_like.config.AnswerConfig`, for this question only.

        Returns:
            Text, evidence and timings. With nothing seen yet its status is ``no_footage``.

        Raises:
            SessionStateError: The session is closed.
            BudgetError: The question is longer than its reserve.
        """
        stream = self.ask_stream(
            question,
            prompt=prompt,
            route=route,
            since_s=since_s,
            until_s=until_s,
            on_progress=on_progress,
            now_s=now_s,
            deadline_s=deadline_s,
            **overrides,
        )
        for _ in stream:
            pass
        return stream.answer

    def ask_stream(
        self,
        question: str,
        *,
        prompt: str | None = None,
        route: Route | None = None,
        since_s: float | None = None,
        until_s: float | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        now_s: float | None = None,
        deadline_s: float | None = None,
        **overrides: Any,
    ) -> AnswerStream:
        """Like :meth:`ask`, with the text as it comes."""
        self._require_open()
        return self._desk.stream(
            question,
            prompt=prompt,
            route=route,
            since_s=since_s,
            until_s=until_s,
            on_progress=on_progress,
            now_s=now_s,
            deadline_s=deadline_s,
            overrides=overrides,
        )

    def keyframe(self, name: str) -> Image:
        """The stored picture behind ``Evidence.keyframe``, uint8 ``[H, W, 3]``.

        Raises:
            SegmentUnavailableError: It is gone.
        """
        return self._require_long_term().picture(int(name))

    @contextmanager
    def _fork(self) -> Iterator[tuple[HierarchicalCache, FrameTable]]:
        """The memory as it is now, with pending frames, to be thrown away."""
        with self._lock:
            self._require_open()
            opened = self.memory.cache.fork()
            cache = opened.__enter__()
            table = self.memory.frames.copy()
            if self._open.frames:
                chunk = self._open.embed(self._state.num_segments)
                self.memory.append_frames(chunk.tokens, chunk.records, cache=cache)
                for offset, record in enumerate(chunk.records):
                    table.add(self.memory.num_frames + offset, record)
        try:
            yield cache, table
        finally:
            with self._lock:
                opened.__exit__(None, None, None)

    def reset_conversation(self) -> None:
        """Forget earlier questions and answers; the video memory stays."""
        self._answerer.conversation.turns.clear()

    # -- forgetting ------------------------------------------------------------------------------

    def erase(self, start_s: float, end_s: float, *, deep: bool = False) -> tuple[float, float]:
        """Make a stretch of the stream unreadable, on the device and in every tier.

        Whole segments go, so a little more than asked for may be erased. Tokens that were computed
        later have seen the erased frames and stay; ``deep`` drops them too.

        Args:
            start_s: Stream time.
            end_s: Stream time, exclusive.
            deep: Whether everything after ``start_s`` goes as well.

        Returns:
            The stretch that was erased.

        Raises:
            SessionStateError: The session is closed.
            ValueError: The stretch is empty.
            StorageError: A medium failed, and what it holds may still be there.
        """
        if not end_s > start_s:
            raise ValueError(f"erase: expected end_s after {start_s}, got {end_s}")
        with self._lock:
            self._require_open()
            stop_s = math.inf if deep else end_s
            first_s, last_s = start_s, end_s
            if self.long_term is not None:
                segments = self.long_term.timeline.between(start_s, stop_s)
                first_s = min([start_s, *(s.start_s for s in segments)])
                last_s = max([end_s, *(s.end_s for s in segments)])
            until_s, num_frames = math.inf if deep else last_s, self._state.num_frames
            open_s = self._open.start_of_erasure(self.memory, num_frames, first_s, until_s)
            first_s = min(first_s, open_s)
            frames = [
                frame
                for frame, record in self.memory.frames.items()
                if record.pts_s < until_s and self.memory.frames.end_of(frame) > first_s
            ]
            self.memory.drop_frames(frames)
            self._open.forget(self.memory, num_frames, first_s, until_s)
            self.reset_conversation()
            self._state.erased.append((first_s, min(last_s, max(end_s, self._state.last_s))))
            if self.long_term is not None:
                self._erase_segments(self.long_term, [s.segment_id for s in segments])
            return first_s, last_s

    def enforce_retention(self, now_s: float | None = None) -> bool:
        """Erase what is older than ``store.retention_s`` at once, also while no frames come.

        A stream that is watched forgets by itself, some segments at a time. Whole segments go, once
        all of one is too old.

        Args:
            now_s: The present as stream time, where the camera is silent; None, or earlier: the
                newest frame.

        Returns:
            Whether anything was erased.

        Raises:
            SessionStateError: The session is closed.
            StorageError: A medium failed, and what it holds may still be there.
        """
        with self._lock:
            self._require_open()
            last_s = self._state.last_s
            return self._retain(last_s if now_s is None else max(now_s, last_s), 1)

    def _retain(self, now_s: float, batch: int) -> bool:
        """Erase what is too old, where that reaches back by so many segments."""
        if self.config.store.retention_s is None:
            return False
        until_s = now_s - self.config.store.retention_s
        old = [] if self.long_term is None else self.long_term.timeline.between(None, until_s)
        gone = [segment.segment_id for segment in old if segment.end_s <= until_s]
        # By their times and not by segments: one that a cap took may have tokens here.
        table = self.memory.frames
        frames = [frame for frame in table.frames() if table.end_of(frame) <= until_s]
        later = [frame for frame in table.frames() if table.end_of(frame) > until_s]
        reach = (later[0] if later else self.memory.num_frames) - frames[0] if frames else 0
        is_pending = any(frame.pts_s < until_s for frame in self._open.frames)
        most = 1 if batch == 1 else batch * self.config.memory.segment_frames
        if len(gone) < batch and reach < most and not is_pending:
            return False
        self.memory.drop_frames(frames)
        self._open.forget(self.memory, self._state.num_frames, -math.inf, until_s)
        if self.long_term is not None:
            self._erase_segments(self.long_term, gone)
        return True

    def _erase_segments(self, long_term: LongTermMemory, segment_ids: Sequence[int]) -> None:
        long_term.erase(segment_ids)
        if long_term.has_folder:
            # The last checkpoint may hold tokens of the erased stretch.
            self._save(long_term, must_replace=True)

    # -- state -----------------------------------------------------------------------------------

    def stats(self) -> SessionStats:
        """What is held, where the time went, and whether the caps were kept."""
        with self._lock:
            clock = self.memory.clock
            long_term = self.long_term
            return SessionStats(
                stream=self.name,
                stream_s=self._state.last_s,
                num_frames=self._state.num_frames,
                num_segments=self._state.num_segments,
                device_tokens=self.memory.budget.device_tokens,
                peak_slots=self.memory.cache.peak_slots,
                device_bytes=self.memory.cache.num_bytes,
                expected_bytes=self.memory.expected_bytes(),
                layers=self.memory.layer_stats(),
                vision_s=self._open.vision_s,
                prefill_s=clock.prefill_s,
                scoring_s=clock.scoring_s,
                compaction_s=clock.compaction_s,
                store_s=0.0 if long_term is None else long_term.encode_s,
                tiers={} if long_term is None else long_term.tier_bytes(),
                store_state="off" if long_term is None else long_term.chain.state,
            )

    @property
    def has_folder(self) -> bool:
        """Whether the memory outlives the process."""
        return self.long_term is not None and self.long_term.has_folder

    @property
    def promised_device_bytes(self) -> int:
        """Bytes of the cache with ``device_tokens`` slots in every layer; 0: without a limit."""
        slots = self.memory.budget.device_tokens
        if slots is None:
            return 0
        layers = self.memory.cache.layers
        return slots * len(layers) * self.memory.slot_bytes

    def clock(self) -> StreamClock:
        """Stream time of the newest frame and, where known, times on the clock."""
        with self._lock:
            return self._desk.clock()

    def save(self) -> None:
        """Write everything to the folder: pending segments and the device state.

        Raises:
            SessionStateError: The session has no folder, or is closed.
            StorageError: The medium failed.
        """
        with self._lock:
            self._require_open()
            long_term = self._require_long_term()
            if not long_term.has_folder:
                raise SessionStateError(f"session {self.name!r} was made without a folder")
            long_term.flush()
            self._save(long_term)

    def _save(self, long_term: LongTermMemory, *, must_replace: bool = False) -> None:
        self._state.name = self.name
        if self.config.store.keep_images:
            state, pending, images = self._state, self._open.frames, self._open.images
        else:
            # No picture may reach the disk, so frames that wait for prefill are not kept.
            state, pending, images = self._state_without_pending(), [], {}
        data = to_bytes(state, self.memory, pending, images)
        long_term.put_state(data, must_replace=must_replace)

    def _state_without_pending(self) -> SessionState:
        if not self._open.frames:
            return self._state
        known, last_s = self.memory.num_frames, 0.0
        if known - 1 in self.memory.frames:
            last_s = self.memory.frames[known - 1].pts_s
        elif known:  # it was erased; what waits comes after it, and may come again
            last_s = math.nextafter(self._open.frames[0].pts_s, -math.inf)
        return replace(self._state, num_frames=known, last_s=last_s)

    def close(self, *, save: bool = True) -> None:
        """End the session and give its memory back. Safe to call twice.

        Args:
            save: Whether the device state goes to the folder, so that :meth:`open` goes on from it.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                if self.long_term is not None and save and self.long_term.has_folder:
                    self.long_term.flush()
                    self._save(self.long_term)
            finally:
                if self.long_term is not None:
                    self.long_term.close()
                self._open.clear()
                self.memory.release()

    def _require_long_term(self) -> LongTermMemory:
        if self.long_term is None:
            raise SessionStateError("store.enabled is false: nothing is kept off the device")
        return self.long_term

    def _require_open(self) -> None:
        if self._is_closed:
            raise SessionStateError(f"session {self.name!r} is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

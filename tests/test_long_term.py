"""The past off the device: found again, kept over restarts, erased for good, told when missing."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import torch

from hermes_like.config import HermesConfig, MemoryConfig, RetrievalConfig, StoreConfig
from hermes_like.errors import FingerprintError, SessionStateError, StorageError
from hermes_like.index import SegmentIndex
from hermes_like.models import load_model
from hermes_like.records import Frame
from hermes_like.session import StreamSession
from hermes_like.sprites.render import render_frame
from hermes_like.sprites.world import Event, Sprite, Story

ROOT = Path(__file__).parent.parent
STAR = Sprite("star", "red", "left", 7)
WALL = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def filler(count: int, seed: int) -> list[Event]:
    """Events of two frames without stars, red things and sevens; no kind twice in a row."""
    rng = np.random.default_rng(seed)
    shapes, colors = ("ring", "moon", "square", "heart"), ("blue", "green", "white")
    zones = ("left", "right", "top", "bottom", "center")
    events: list[Event] = []
    while len(events) < count:
        sprite = Sprite(
            shapes[rng.integers(4)], colors[rng.integers(3)], zones[rng.integers(5)],
            int(rng.integers(0, 6)),
        )  # fmt: skip
        last = events[-1].sprites[0] if events else None
        if last is None or (last.shape, last.color) != (sprite.shape, sprite.color):
            events.append(Event((sprite,), 2))
    return events


#: A red star early on, then two and a half minutes of other things.
STORY = Story((*filler(6, 1), Event((STAR,), 2), *filler(72, 2)))
STAR_S = (12.0, 14.0)


def frames(story: Story = STORY, *, wall: bool = False) -> Iterator[Frame]:
    """One frame a second."""
    for index, sprites in enumerate(story.frames()):
        image = render_frame(sprites, np.random.default_rng([5, index]), width=96, height=96)
        when = WALL + timedelta(seconds=index) if wall else None
        yield Frame(image, index, float(index), when)


@pytest.fixture(scope="module")
def sprites():
    return load_model("sprites")


def small(**store: object) -> HermesConfig:
    """A device memory that forgets the star soon, and a small store."""
    return HermesConfig(
        memory=MemoryConfig(device_tokens=190),
        store=StoreConfig(
            host_bytes=32 * 2**20, disk_bytes=64 * 2**20, keyframe_bytes=8 * 2**20,
            min_free_bytes=0, **store,
        ),
    )  # fmt: skip


@pytest.fixture(scope="module")
def watched(sprites, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the memory of the whole story, cleanly closed."""
    folder = tmp_path_factory.mktemp("memory") / "cam"
    with StreamSession(sprites, small(), name="cam", folder=folder) as session:
        for frame in frames(wall=True):
            session.observe(frame)
    return folder


def copied(folder: Path, to: Path) -> Path:
    subprocess.run(["cp", "-a", str(folder), str(to)], check=True)
    return to


def state(session: StreamSession) -> list[torch.Tensor]:
    layers = session.memory.cache.layers
    return [t.clone() for s in layers for t in (s.raw_keys, s.keys, s.values, s.positions, s.ids)]


# -- in RAM ----------------------------------------------------------------------------------------


def test_ram_beside_segments_counts_and_holes_of_the_index_are_given_back(
    sprites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[bool] = []
    monkeypatch.setattr("hermes_like.long_term.give_back", lambda: given_back.append(True))
    with StreamSession(sprites, small(), folder=tmp_path / "cam") as session:
        for frame in itertools.islice(frames(), 40):
            session.observe(frame)
        long_term = session.long_term
        assert long_term is not None
        long_term.flush()
        tables = long_term.chain.table_bytes
        assert tables > 0
        long_term.erase([])  # counts anew, now that the writer is done
        beside = long_term.index.num_bytes + long_term.timeline.num_bytes + tables
        assert long_term._reserved_bytes == beside
        assert long_term.chain.stats().tiers["host"].used_bytes > beside
        assert not given_back, "a small index leaves small holes"
        grown = long_term.index.num_bytes + 2**20 + 1
        monkeypatch.setattr(SegmentIndex, "num_bytes", property(lambda _: grown))
        long_term.erase([])
        long_term.erase([])
        assert given_back == [True], "once for each move to larger arrays"


# -- found again -----------------------------------------------------------------------------------


def test_what_the_device_forgot_comes_back(sprites) -> None:
    plain = small().model_copy(update={"store": StoreConfig(enabled=False)})
    with StreamSession(sprites, small()) as ours, StreamSession(sprites, plain) as forgetful:
        for frame in frames():
            ours.observe(frame)
            forgetful.observe(frame)
        frames_held = ours.memory.resident_frames()
        assert not {12, 13} & frames_held, "expected the star to be gone from the device"
        answer = ours.ask("where was the red star ?")
        assert (answer.text, answer.route, answer.status) == ("left", "recall", "ok")
        best = answer.evidence[0]
        assert best.tier == "host"
        assert best.start_s < STAR_S[1]
        assert best.end_s > STAR_S[0]
        assert best.keyframe is not None
        assert ours.keyframe(best.keyframe).shape == (96, 96, 3)
        assert ours.ask("which object carried 7 ?").text == "red star"
        now = ours.ask("what is visible now ?", keep_conversation=False)
        last = STORY.events[-1].sprites[0]
        assert (now.text, now.route) == (f"{last.color} {last.shape}", "now")
        assert ours.stats().peak_slots <= 190
        assert forgetful.stats().store_state == "off"
        with pytest.raises(SessionStateError, match=r"store\.enabled"):
            forgetful.save()


def test_scan_counts_lists_and_denies(sprites) -> None:
    times = (4, 30, 61)
    events: list[Event] = []
    others = filler(40, 3)
    for index, event in enumerate(others):
        events += [Event((STAR,), 2)] if index in (2, 15, 30) else []
        events.append(event)
    with StreamSession(sprites, small()) as session:
        for frame in frames(Story(tuple(events))):
            session.observe(frame)
        count = session.ask("how many stars appeared ?")
        assert (count.text, count.route) == ("3", "scan")
        starts = [evidence.start_s for evidence in count.evidence]
        assert len(starts) == len(times)
        assert session.ask("was there a red star ?").text == "yes"
        assert session.ask("was there a blue star ?").text == "no"
        session._desk.scanner.config = RetrievalConfig(scan_min_frames=3, scan_sure_frames=10)
        assert session.ask("was there a red star ?").text == "no", "two frames, three wanted"
        session._desk.scanner.config = RetrievalConfig(scan_min_frames=3, scan_sure_frames=1000)
        assert session.ask("was there a red star ?").text == "yes", "few frames: one is enough"
        session._desk.scanner.config = session.config.retrieval
        seen: list[tuple[int, int]] = []
        listed = session.ask(
            "when was there a red star ?", on_progress=lambda a, b: seen.append((a, b))
        )
        assert listed.text.count(" to ") == 3
        assert seen
        session._desk.scanner.config = RetrievalConfig(scan_deadline_s=1e-9)
        partial = session.ask("how many stars appeared ?")
        assert partial.status == "partial"
        assert any("time ran out" in note for note in partial.notes)


def test_a_named_time_is_answered_from_that_time(sprites, watched: Path, tmp_path: Path) -> None:
    with StreamSession.open(sprites, copied(watched, tmp_path / "m"), small()) as session:
        told = session.ask("what was visible at 12 s ?", route="time", since_s=12.0, until_s=13.0)
        assert (told.text, told.route) == ("red star", "time")
        assert session.ask("what was visible at 12:00:13 ?").text == "red star"
        asked: list[str] = []
        model = session._desk.model
        question_ids = model.question_ids
        question = "what was visible at 12:00:13 ?"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(model, "unknown_words", lambda text: [])
            patch.setattr(
                model,
                "question_ids",
                lambda text, **how: asked.append(text) or question_ids(text, **how),
            )
            prompted = session.ask(question, prompt=f"{question} A. before 11:00:00 B. later")
        assert prompted.route == "time"
        assert "A. before 11:00:00 B. later" in asked[-1], "times in options stay"
        assert "12:00:13" not in asked[-1], "the time that was looked up is left out"
        with pytest.raises(ValueError, match="prompt: expected some words"):
            session.ask("what is visible now ?", prompt=" ")
        future = session.ask("what was visible at 12:30:00 ?")
        assert future.status == "no_footage"
        assert "12:30" in future.text or "has not come yet" in future.text


# -- restarts --------------------------------------------------------------------------------------


def test_a_clean_close_brings_the_device_back_bit_for_bit(sprites, tmp_path: Path) -> None:
    """Closed in the middle of a segment, with the twin that was never closed beside it."""
    everything = list(frames())[:51]
    with StreamSession(sprites, small()) as twin:
        session = StreamSession(sprites, small(), folder=tmp_path / "m")
        for frame in everything[:33]:
            session.observe(frame)
            twin.observe(frame)
        session.close()
        with StreamSession.open(sprites, tmp_path / "m", small()) as again:
            assert all(map(torch.equal, state(again), state(twin)))
            for frame in everything[33:]:
                again.observe(frame)
                twin.observe(frame)
            assert all(map(torch.equal, state(again), state(twin)))
            question = "where was the red star ?"
            assert again.ask(question).text == twin.ask(question).text == "left"
            again.memory.check()


def test_killed_and_opened_again(sprites, tmp_path: Path) -> None:
    """SIGKILL in mid-stream: every committed segment is there, and answers are the same."""
    script = textwrap.dedent(
        """
        import sys, torch
        torch.set_num_threads(1)
        from pathlib import Path
        from hermes_like.models import load_model
        from hermes_like.session import StreamSession
        from tests.test_long_term import frames, small
        session = StreamSession(
            load_model("sprites"), small(checkpoint_segments=8), folder=Path(sys.argv[1])
        )
        for frame in frames():
            session.observe(frame)
            if session.stats().num_segments == 23:
                session.long_term.flush()
                print(session.stats().num_segments, flush=True)
                sys.stdin.readline()
        """
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "m")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdin is not None
    assert int(child.stdout.readline()) == 23
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdin.close()
    child.stdout.close()
    everything = list(frames())
    with (
        StreamSession.open(sprites, tmp_path / "m", small(checkpoint_segments=8)) as again,
        StreamSession(sprites, small()) as twin,
    ):
        assert again.stats().num_segments == 23
        assert again.stats().num_frames == 92
        assert len(again.long_term.timeline) == 23
        for frame in everything[:92]:
            twin.observe(frame)
        for question in ("where was the red star ?", "what is visible now ?", "what came last ?"):
            assert again.ask(question).text == twin.ask(question).text
        again.memory.check()
        for frame in everything[92:100]:
            again.observe(frame)
        assert again.stats().num_segments == 25


def test_another_model_or_setting_is_refused_by_name(
    sprites, watched: Path, tmp_path: Path
) -> None:
    folder = copied(watched, tmp_path / "m")
    with pytest.raises(FingerprintError, match=r"codec .*int8.*int4"):
        StreamSession.open(sprites, folder, small(codec="int4"))
    with pytest.raises(FingerprintError, match="weights_digest"):
        StreamSession.open(
            load_model("random:llava-onevision-tiny"),
            folder,
            HermesConfig(
                memory=MemoryConfig(device_tokens=600, question_tokens=200, history_tokens=0),
                store=small().store,
            ),
        )
    with StreamSession.open(sprites, folder, small()) as session:
        assert session.ask("where was the red star ?").text == "left"


def test_a_smaller_device_goes_on_with_the_same_past(
    sprites, watched: Path, tmp_path: Path
) -> None:
    folder = copied(watched, tmp_path / "m")
    config = small().model_copy(update={"memory": MemoryConfig(device_tokens=180)})
    with StreamSession.open(sprites, folder, config) as session:
        assert session.ask("where was the red star ?").text == "left"
        assert session.stats().device_tokens == 180


# -- forgetting ------------------------------------------------------------------------------------


def test_erased_is_gone_everywhere(sprites, watched: Path, tmp_path: Path) -> None:
    folder = copied(watched, tmp_path / "m")
    with StreamSession.open(sprites, folder, small()) as session:
        record = session.long_term.chain.get(3)[0]
        vectors = record.head.vectors.tobytes()
        picture = bytes(session.long_term.chain.pictures(3).images[0].data)
        assert _found(folder, [bytes(record.layers[0])[64:128], vectors[:64], picture[-200:-100]])
        erased = session.erase(*STAR_S)
        assert erased == (12.0, 16.0)
        needles = [bytes(record.layers[0])[64:128], vectors[:64], picture[-200:-100]]
        assert not _found(folder, needles)
        told = session.ask("what was visible at 12 s ?", since_s=12.0, until_s=14.0)
        assert told.status == "no_footage"
        assert "erased" in told.text
        assert session.ask("was there a red star ?").text == "no"
    with StreamSession.open(sprites, folder, small()) as session:
        assert session.ask("what was visible ?", since_s=12.0, until_s=14.0).status == "no_footage"
    assert not _found(folder, needles)


def _found(folder: Path, needles: list[bytes]) -> bool:
    data = b"".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())
    return any(needle in data for needle in needles)


def test_erasing_what_is_on_the_device(sprites) -> None:
    with StreamSession(sprites, small()) as session:
        for frame in list(frames())[:18]:
            session.observe(frame)
        assert session.ask("where was the red star ?").text == "left"
        session.erase(12.0, 14.0)
        assert not {12, 13} & session.memory.resident_frames()
        session.memory.check()
        assert session.ask("was there a red star ?").text == "no"
        session.erase(0.0, 1.0, deep=True)
        assert not session.memory.resident_frames()
        assert session.ask("what was visible ?", since_s=0.0).status == "no_footage"
        with pytest.raises(ValueError, match="end_s"):
            session.erase(3.0, 3.0)


def test_retention_forgets_what_is_old(sprites) -> None:
    with StreamSession(sprites, small(retention_s=40.0)) as session:
        for frame in frames():
            session.observe(frame)
        oldest = session.long_term.timeline.first_s
        assert session.stats().stream_s - oldest < 40.0 + 4 * 17
        assert session.ask("what was visible ?", since_s=0.0, until_s=10.0).status == "no_footage"


# -- caps, pictures, thinning ----------------------------------------------------------------------


def test_from_pictures_when_keys_and_values_are_gone(sprites) -> None:
    """RAM too small for the whole past: its pictures stay, and are encoded again on a hit."""
    config = small(keyframes_per_segment=2)
    store = config.store.model_copy(update={"host_bytes": 1_790_000})
    config = config.model_copy(update={"store": store})
    with StreamSession(sprites, config) as session:
        for frame in frames():
            session.observe(frame)
        assert session.long_term.chain.where(3) == "source"
        answer = session.ask("where was the red star ?")
        assert answer.text == "left"
        assert answer.evidence[0].tier == "source"
        assert any("pictures" in note for note in answer.notes)
        used, cap, _ = session.stats().tiers["host"]
        assert used <= cap
        assert session.ask("where was the blue moon ?").evidence[0].tier in ("host", "device")


def test_thinned_segments_answer_all_the_same(sprites) -> None:
    whole, thin = small(), small(thin_threshold=0.9)
    sizes = []
    for config in (whole, thin):
        with StreamSession(sprites, config) as session:
            for frame in frames():
                session.observe(frame)
            sizes.append(session.long_term.written_bytes)
            assert session.ask("where was the red star ?").text == "left"
            assert session.ask("was there a blue star ?").text == "no"
    assert sizes[1] < 0.8 * sizes[0]


def test_frames_of_thinned_segments_can_be_shown_alone(sprites) -> None:
    """A token that stands for several frames comes as a part of each."""
    per_frame = sprites.dims.tokens_per_frame
    with StreamSession(sprites, small(codec="raw", thin_threshold=0.9)) as session:
        for frame in list(frames())[:32]:
            session.observe(frame)
        long_term = session.long_term
        head, layers = long_term.read_segment(1)
        wanted = {1: range(head.first_frame, head.first_frame + head.num_frames)}
        tokens = long_term.fetch(wanted, 10.0).tokens
    first = head.first_frame * per_frame
    stored = head.token_cells.astype(int).tolist()
    assert len(stored) < 0.8 * head.num_frames * per_frame
    for layer, whole in enumerate(tokens):
        assert whole.ids.tolist() == list(range(first, first + head.num_frames * per_frame))
        for cell in range(head.num_frames * per_frame):
            before = range(cell % per_frame, cell + 1, per_frame)
            latest = stored.index(max(set(before) & set(stored)))
            assert torch.equal(whole.values[:, cell], layers[layer].values[:, latest])
            assert torch.equal(whole.raw_keys[:, cell], layers[layer].raw_keys[:, latest])


def test_thinning_at_the_cap_keeps_more_of_the_past(sprites, tmp_path: Path) -> None:
    story = Story((*filler(6, 1), Event((STAR,), 2), *filler(96, 3)))
    kept, sizes = [], []
    for steps in (("forget",), ("thin", "forget")):
        config = small(codec="raw", checkpoint_segments=1)
        caps = {"disk_bytes": 4 * 2**20, "keyframe_bytes": 0, "host_bytes": 2**21}
        store = config.store.model_copy(update={**caps, "at_disk_cap": steps})
        memory = config.memory.model_copy(update={"segment_frames": 4})
        config = config.model_copy(update={"store": store, "memory": memory})
        folder = tmp_path / steps[0]
        with StreamSession(sprites, config, folder=folder) as session:
            for frame in frames(story):
                session.observe(frame)
            session.long_term.flush()
            stats = session.long_term.chain.stats()
            kept.append(len(session.long_term.timeline))
            sizes.append(sum(p.stat().st_blocks * 512 for p in folder.rglob("*")))
            assert stats.thinned > 10 if steps[0] == "thin" else stats.thinned == 0
            if steps[0] == "thin":
                assert session.ask("where was the red star ?").text == "left"
    assert kept[1] > kept[0]
    assert max(sizes) <= 4 * 2**20


def test_the_folder_is_private_and_holds_the_cap(sprites, watched: Path) -> None:
    assert watched.stat().st_mode & 0o777 == 0o700
    files = [p for p in watched.rglob("*") if p.is_file()]
    assert all(p.stat().st_mode & 0o777 == 0o600 for p in files)
    assert sum(p.stat().st_blocks * 512 for p in files) <= 64 * 2**20


def test_a_folder_with_a_memory_is_not_begun_anew(sprites, watched: Path) -> None:
    with pytest.raises(StorageError, match="open"):
        StreamSession(sprites, small(), folder=watched)


def test_encrypted_folders_need_their_key(sprites, tmp_path: Path) -> None:
    key = bytes(range(32))
    with StreamSession(sprites, small(), folder=tmp_path / "m", key=key) as session:
        for frame in list(frames())[:24]:
            session.observe(frame)
    with pytest.raises(StorageError, match="key"):
        StreamSession.open(sprites, tmp_path / "m", small(), key=bytes(32))
    with StreamSession.open(sprites, tmp_path / "m", small(), key=key) as session:
        assert session.ask("where was the red star ?").text == "left"


def test_at_the_cap_the_oldest_goes_for_a_checkpoint(
    sprites, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without it, a kill would fall back on an older and older one."""
    with StreamSession(sprites, small(), folder=tmp_path / "m") as session:
        for frame in list(frames())[:40]:
            session.observe(frame)
        session.save()
        long_term = session.long_term
        before = [head.segment_id for head in long_term.chain.heads()]
        ledger = long_term._disk._shared.ledger
        ledger.cap_bytes -= ledger.room_bytes - 4096
        session.save()
        assert "checkpoint not written" not in caplog.text
        left = [i for i in before if long_term.chain._catalog.get(i).is_on_disk]
        assert len(left) < len(before), "something had to go"
        assert left == before[len(before) - len(left) :]
        long_term.chain.check()

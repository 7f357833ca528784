"""What nobody may see, and what was to be forgotten, is in no answer and in no file."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hermes_like.cli import run
from hermes_like.config import HermesConfig, MemoryConfig, Polygon, SourceConfig, StoreConfig
from hermes_like.errors import SegmentUnavailableError
from hermes_like.models import load_model
from hermes_like.presets import load_config
from hermes_like.records import Frame
from hermes_like.session import StreamSession
from hermes_like.tiers.destroy import destroy_memory
from tests.test_long_term import frames, state
from tests.tiers.disk_tools import volumes_of

ROOT = Path(__file__).parent.parent
LEFT: Polygon = ((0, 0), (0.4, 0), (0.4, 1), (0, 1))
RIGHT: Polygon = ((0.4, 0), (1, 0), (1, 1), (0.4, 1))
WAS_THERE = "was there a red star ?"
#: How stored pictures begin.
SIGNATURES = (b"\xff\xd8\xff\xe0\x00\x10JFIF", b"WEBPVP8", b"\x89PNG\r\n")


@pytest.fixture(scope="module")
def sprites():
    return load_model("sprites")


def config_of(
    *, masks: tuple[Polygon, ...] = (), zones: tuple[Polygon, ...] = (), prefill_frames: int = 1,
    **store: object,
) -> HermesConfig:  # fmt: skip
    """A device memory that forgets soon, and a small store."""
    values: dict[str, object] = {
        "host_bytes": 32 * 2**20, "disk_bytes": 64 * 2**20, "keyframe_bytes": 8 * 2**20,
        "min_free_bytes": 0, "durability": "none",
    }  # fmt: skip
    return HermesConfig(
        source=SourceConfig(masks=masks, zones=zones),
        memory=MemoryConfig(device_tokens=190, prefill_frames=prefill_frames),
        store=StoreConfig.model_validate({**values, **store}),
    )


def with_other_left(stream: Iterator[Frame], width: int = 39) -> Iterator[Frame]:
    """The same stream, with noise of its own where the mask ``LEFT`` hides it (39 of 96 pixels)."""
    rng = np.random.default_rng(11)
    for frame in stream:
        image = frame.image.copy()
        image[:, :width] = rng.integers(0, 256, (96, width, 3), dtype=np.uint8)
        yield replace(frame, image=image)


def planted(count: int) -> list[Frame]:
    """Frames of noise, so that any piece of one is like nothing else."""
    rng = np.random.default_rng(23)
    return [
        Frame(rng.integers(0, 256, (96, 96, 3), dtype=np.uint8), i, float(i)) for i in range(count)
    ]


def haystack(folder: Path) -> bytes:
    return b"\xff".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())


def pieces(frame: Frame) -> list[bytes]:
    """Some stretches of the raw pixels of a frame."""
    data = frame.image.tobytes()
    return [data[at : at + 16] for at in range(0, len(data) - 16, 2000)]


def traces(session: StreamSession, segment_id: int) -> list[bytes]:
    """Byte strings that only one stored segment has: keys and values, vectors, picture, key."""
    assert session.long_term is not None
    record = session.long_term.chain.get(segment_id)[0]
    found = [bytes(layer)[at : at + 32] for layer in record.layers for at in (64, len(layer) // 2)]
    vectors = record.head.vectors.tobytes()
    found += [vectors[:32], vectors[-32:], record.head.content_key]
    if session.long_term.has_pictures(segment_id):
        picture = bytes(session.long_term.chain.pictures(segment_id).images[0].data)
        found += [picture[-200:-150]]
    return found


# -- masks and zones -------------------------------------------------------------------------------


@pytest.mark.parametrize("areas", [{"masks": (LEFT,)}, {"zones": (RIGHT,)}])
def test_twins_that_differ_under_the_mask_are_bit_equal(
    sprites, tmp_path: Path, areas: dict[str, tuple[Polygon, ...]]
) -> None:
    """Device, segments, vectors, pictures, pending frames, and every file of the folder."""
    config = config_of(**areas, prefill_frames=4)
    kept: list[dict[str, bytes]] = []
    states: list[list[torch.Tensor]] = []
    for name, stream in (("a", frames()), ("b", with_other_left(frames()))):
        folder = tmp_path / name
        with StreamSession(sprites, config, name="twin", folder=folder) as session:
            for frame in list(stream)[:35]:
                session.observe(frame)
            assert len(session._open.frames) == 3
            session.save()
            states.append(state(session))
        kept.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert all(map(torch.equal, *states))
    assert kept[0].keys() == kept[1].keys()
    assert any(name.startswith("keyframes-") for name in kept[0])
    assert not [name for name in kept[0] if kept[0][name] != kept[1][name]]


def test_twins_differ_without_a_mask(sprites, tmp_path: Path) -> None:
    """The control of the test above: what is compared there does tell."""
    states = []
    for stream in (frames(), with_other_left(frames())):
        with StreamSession(sprites, config_of()) as session:
            for frame in list(stream)[:20]:
                session.observe(frame)
            states.append(state(session))
    assert not any(torch.equal(a, b) for a, b in zip(*states, strict=True) if a.is_floating_point())


def test_what_is_under_a_mask_cannot_be_asked_for(sprites) -> None:
    """The star stands on the left; events on the right are told as before."""
    for config, answer in ((config_of(), "yes"), (config_of(masks=(LEFT,)), "no")):
        with StreamSession(sprites, config) as session:
            for frame in list(frames())[:40]:
                session.observe(frame)
            assert session.ask(WAS_THERE).text == answer
            picture = session.keyframe("3")
            hidden = picture[:, :32]  # a JPEG shows traces of an edge up to 8 pixels beside it
            assert hidden.max() == 0 if answer == "no" else hidden.std() > 5


def test_pixels_under_a_mask_are_in_no_file_and_in_no_frame_held(sprites, tmp_path: Path) -> None:
    """Raw pixels of frames that wait for prefill are stored; those under the mask never are."""
    for masks, is_found in (((), True), ((LEFT,), False)):
        folder = tmp_path / f"m{len(masks)}"
        config = config_of(masks=masks, prefill_frames=4)
        stream = planted(7)
        with StreamSession(sprites, config, folder=folder) as session:
            for frame in stream:
                session.observe(frame)
            session.save()
            held = b"".join(frame.image.tobytes() for frame in session._open.frames)
        hidden = [row[:30].tobytes() for frame in stream[4:] for row in frame.image[::9]]
        shown = [row[60:].tobytes() for frame in stream[4:] for row in frame.image[::9]]
        hay = haystack(folder)
        assert all(piece in hay and piece in held for piece in shown)
        assert any(piece in hay or piece in held for piece in hidden) == is_found


def test_masks_and_zones_are_set_by_text() -> None:
    """As on the command line, in the environment and in a preset: lists in JSON or YAML."""
    text = "[[[0,0],[0.5,0],[0.5,1],[0,1]]]"
    by_setting = load_config(overrides={"source.masks": text}, env={})
    by_variable = load_config(env={"HERMES_LIKE__SOURCE__ZONES": text})
    wanted = (((0.0, 0.0), (0.5, 0.0), (0.5, 1.0), (0.0, 1.0)),)
    assert by_setting.source.masks == by_variable.source.zones == wanted
    assert not by_setting.source.zones


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[[0,0],[0.5,0]]]", "masks: expected at least three corners from 0 to 1, got"),
        ("[[[0,0],[0.5,0],[0.5,2]]]", "masks: expected at least three corners from 0 to 1, got"),
        ("[[0,0],[0.5,0],[0.5,1]]", "expected a list, got 0"),
        ("left", "expected a list, got 'left'"),
    ],
)
def test_what_is_no_area_is_refused_by_name(
    sprites_video: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    assert run(["ask", str(sprites_video), WAS_THERE, "--set", f"source.masks={text}"]) == 2
    assert message in capsys.readouterr().err


def test_a_mask_on_the_command_line(
    sprites_video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the memory is kept, and asked later without naming the mask again."""
    setting = ["--set", "source.masks=[[[0,0],[0.5,0],[0.5,1],[0,1]]]"]
    folder = str(tmp_path / "m")

    def texts(words: list[str]) -> list[str]:
        assert run([*words, "--json"]) == 0
        return [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()]

    words = ["ask", str(sprites_video), WAS_THERE, "what is visible now ?"]
    assert texts(words) == ["yes", "blue ring"]
    assert texts([*words, *setting, "--memory", folder]) == ["no", "blue ring"]
    assert texts(["memory", "ask", folder, WAS_THERE]) == ["no"]


# -- text only -------------------------------------------------------------------------------------


@pytest.mark.parametrize("picture_format", ["jpeg", "webp"])
def test_text_only_lets_no_picture_reach_the_folder(
    sprites, tmp_path: Path, picture_format: str
) -> None:
    """Saved and closed with frames that wait for prefill; with pictures allowed both are found."""
    stream = planted(11)
    for keep_images in (True, False):
        folder = tmp_path / str(keep_images)
        config = config_of(
            prefill_frames=4, keep_images=keep_images, keyframe_format=picture_format,
            checkpoint_segments=1,
        )  # fmt: skip
        seen: list[bytes] = []
        with StreamSession(sprites, config, folder=folder) as session:
            for frame in stream:
                session.observe(frame)
                session.save()
                seen.append(haystack(folder))
            assert len(session._open.frames) == 3
        hay = b"".join([*seen, haystack(folder)])
        assert any(mark in hay for mark in SIGNATURES) == keep_images
        assert any(piece in hay for frame in stream for piece in pieces(frame)) == keep_images
        assert bool(volumes_of(folder, "keyframes")) == keep_images


def test_text_only_answers_from_keys_and_values_after_reopening(sprites, tmp_path: Path) -> None:
    config = config_of(prefill_frames=2, keep_images=False)
    stream = list(frames())[:61]
    with StreamSession(sprites, config, folder=tmp_path / "m") as session:
        for frame in stream:
            session.observe(frame)
        assert len(session._open.frames) == 1
    with StreamSession.open(sprites, tmp_path / "m", config) as session:
        stats = session.stats()
        assert (stats.num_frames, stats.stream_s) == (60, 59.0)
        assert 12 not in session.memory.resident_frames()
        answer = session.ask("where was the red star ?")
        assert (answer.text, answer.evidence[0].keyframe) == ("left", None)
        assert answer.evidence[0].tier in ("host", "disk")
        with pytest.raises(SegmentUnavailableError):
            session.keyframe("3")
        for frame in list(frames())[60:80]:  # the one that was not kept may come again
            session.observe(frame)
        session.memory.check()


def test_text_only_survives_a_kill_without_pictures(sprites, tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import os, signal, sys, torch
        torch.set_num_threads(1)
        from hermes_like.models import load_model
        from hermes_like.session import StreamSession
        from tests.test_privacy import config_of, planted
        config = config_of(prefill_frames=4, keep_images=False, checkpoint_segments=2)
        session = StreamSession(load_model("sprites"), config, folder=sys.argv[1])
        for frame in planted(15):
            session.observe(frame)
        session.long_term.flush()
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "m")], cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    hay = haystack(tmp_path / "m")
    assert not any(mark in hay for mark in SIGNATURES)
    assert not any(piece in hay for frame in planted(15) for piece in pieces(frame))
    config = config_of(prefill_frames=4, keep_images=False)
    with StreamSession.open(sprites, tmp_path / "m", config) as session:
        assert session.stats().num_frames == 12


# -- retention -------------------------------------------------------------------------------------


def watch_and_trace(
    session: StreamSession, stream: Iterable[Frame], folder: Path, cap_bytes: int
) -> dict[int, list[bytes]]:
    """Show all frames; returns the traces of every segment, found in the folder when it closed."""
    long_term, known = session.long_term, dict[int, list[bytes]]()
    assert long_term is not None
    for frame in stream:
        session.observe(frame)
        if frame.index % 4 == 3:
            long_term.flush()
            segment_id = frame.index // 4
            known[segment_id] = traces(session, segment_id)
            if segment_id % 12 == 0:
                hay = haystack(folder)
                assert all(trace in hay for trace in known[segment_id])
            assert sum(p.stat().st_blocks * 512 for p in folder.iterdir()) <= cap_bytes
    return known


def found(folder: Path, known: dict[int, list[bytes]], segment_ids: Iterable[int]) -> list[int]:
    """Which of some segments have left anything in any file."""
    hay = haystack(folder)
    return [i for i in segment_ids if any(trace in hay for trace in known[i])]


def test_retention_by_age_leaves_no_trace_in_any_file(sprites, tmp_path: Path) -> None:
    config = config_of(retention_s=20.0, checkpoint_segments=4)
    folder = tmp_path / "m"
    with StreamSession(sprites, config, folder=folder) as session:
        known = watch_and_trace(session, list(frames())[:88], folder, config.store.disk_bytes)
        assert session.long_term is not None
        gone = [i for i in known if i not in session.long_term.timeline]
        assert len(gone) >= 15
        assert not found(folder, known, gone)
        assert not {frame for i in gone for frame in range(4 * i, 4 * i + 4)} & (
            session.memory.resident_frames()
        )
        assert session.ask("what was visible ?", since_s=0.0, until_s=10.0).status == "no_footage"
    assert not found(folder, known, gone)
    assert found(folder, known, known) == [i for i in known if i not in gone]


@pytest.mark.parametrize("steps", [("forget",), ("drop_kv", "forget")])
def test_retention_by_bytes_holds_the_cap_and_leaves_no_trace(
    sprites, tmp_path: Path, steps: tuple[str, ...]
) -> None:
    """The oldest go; every file is searched for them, and for their pictures and vectors."""
    config = config_of(
        disk_bytes=4 * 2**20, keyframe_bytes=2**20, host_bytes=2**21, at_disk_cap=steps, codec="raw"
    )
    folder = tmp_path / "m"
    with StreamSession(sprites, config, folder=folder) as session:
        known = watch_and_trace(session, list(frames())[:120], folder, 4 * 2**20)
        assert session.long_term is not None
        where = {i: session.long_term.chain.where(i) for i in known}
        assert session.stats().tiers["source"][0] <= 2**20
    gone = [i for i in known if where[i] == (None if steps[0] == "forget" else "source")]
    assert len(gone) >= 2
    if steps[0] == "drop_kv":  # declared: pictures and vectors stay, so that they can be found
        hay = haystack(folder)
        assert all(all(trace in hay for trace in known[i][-4:]) for i in gone)
        known = {i: known[i][:-4] for i in known}
    assert not found(folder, known, gone)
    assert found(folder, known, [i for i in known if i not in gone])


# -- the end of a stream ---------------------------------------------------------------------------


def test_a_destroyed_stream_is_gone_and_may_begin_anew(sprites, tmp_path: Path) -> None:
    folder = tmp_path / "cam"
    with StreamSession(sprites, config_of(), folder=folder) as session:
        for frame in list(frames())[:20]:
            session.observe(frame)
    assert destroy_memory(folder) > 0
    assert not list(tmp_path.iterdir())
    with StreamSession.open(sprites, folder, config_of()) as session:
        assert session.ask(WAS_THERE).status == "no_footage"


def test_forget_on_the_command_line(
    sprites, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cam"
    key = bytes(range(32))
    session = StreamSession(sprites, config_of(), folder=folder, key=key)
    for frame in list(frames())[:8]:
        session.observe(frame)
    words = ["memory", "forget", str(folder)]
    assert run([*words, "--yes"]) == 1
    assert "nobody uses" in capsys.readouterr().err
    session.close()
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert run(words) == 2
    assert "expected --yes" in capsys.readouterr().err
    (folder / "mine.txt").write_text("mine")
    assert run([*words, "--yes"]) == 1
    assert "left: 'mine.txt'" in capsys.readouterr().err
    assert os.listdir(folder) == ["mine.txt"]
    assert run([*words, "--yes"]) == 1
    assert "expected the folder of a memory" in capsys.readouterr().err


def test_forget_asks_on_a_terminal(sprites, tmp_path: Path) -> None:
    """A real terminal: "n" leaves everything, "y" removes it."""
    folder = tmp_path / "cam"
    StreamSession(sprites, config_of(), folder=folder).close()
    for reply, is_left in (("n", True), ("y", False)):
        ours, theirs = pty.openpty()
        try:
            child = subprocess.Popen(
                [sys.executable, "-m", "hermes_like.cli", "memory", "forget", str(folder)],
                stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT,
            )  # fmt: skip
            os.write(ours, reply.encode() + b"\n")
            shown = child.communicate(timeout=60)[0].decode()
        finally:
            os.close(ours)
            os.close(theirs)
        assert f"Remove the memory in {folder} for good?" in shown
        assert (child.returncode != 0) == is_left
        assert folder.exists() == is_left

"""Files that are broken: each cause in its own plain words, and what is readable is given."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceError, SourceOpenError
from hermes_like.frames import sampled
from hermes_like.sources import open_source, video_file
from hermes_like.sources.key_frame_gate import MAX_WAIT_FRAMES, KeyFrameGate
from hermes_like.sources.opencv_file import OpenCVSource
from tests.sources.clip_factory import (
    Image,
    barcode,
    cut_before_index,
    flip_bytes,
    read_barcode,
    video_packets,
    write_audio_only,
)
from tests.sources.conftest import MakeClip, skip_without_reader

READERS = ["auto", "pyav", "opencv", "decord"]
SHORT_GOPS = {"preset": "veryfast", "g": "20", "bf": "0", "sc_threshold": "0"}


def noisy(number: int) -> Image:
    """A barcode that costs the encoder some bytes, so that there is something to damage."""
    noise = np.random.default_rng(number).integers(-12, 12, (240, 320, 3))
    return np.clip(barcode(number).astype(int) + noise, 0, 255).astype(np.uint8)


def _empty(make_clip: MakeClip, folder: Path) -> Path:
    path = folder / "empty.mp4"
    path.touch()
    return path


def _text(make_clip: MakeClip, folder: Path) -> Path:
    path = folder / "text.mp4"
    path.write_text("Dear diary, today I renamed a file. Größe: groß.\n" * 200, encoding="utf-8")
    return path


def _sound(make_clip: MakeClip, folder: Path) -> Path:
    return write_audio_only(folder / "sound.mp4")


def _cut(make_clip: MakeClip, folder: Path) -> Path:
    return cut_before_index(make_clip("plain.mp4"), folder / "cut.mp4")


def _noise(make_clip: MakeClip, folder: Path) -> Path:
    path = folder / "noise.mp4"
    path.write_bytes(np.random.default_rng(0).bytes(5000))
    return path


def _pipe(make_clip: MakeClip, folder: Path) -> Path:
    os.mkfifo(folder / "pipe.mp4")
    return folder / "pipe.mp4"


BAD_FILES = [
    (_empty, r"empty\.mp4: the file is empty \(0 bytes\)"),
    (_text, r"text\.mp4: .*the file holds text, not video"),
    (_sound, r"sound\.mp4: .*the file holds no video, only audio \(aac\)"),
    (_cut, r"cut\.mp4: .*the index \(moov\) is missing"),
    (_noise, r"noise\.mp4: .*not a video file, or damaged beyond reading"),
    (_pipe, r"pipe\.mp4: expected a file, got a device, pipe or socket"),
]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("make", "message"), BAD_FILES)
def test_each_bad_file_has_its_own_message(
    make: Any, message: str, reader: str, make_clip: MakeClip, tmp_path: Path
) -> None:
    """A07, for every reader."""
    if reader != "auto":
        skip_without_reader(reader)
    path = make(make_clip, tmp_path)
    with pytest.raises(SourceOpenError, match=message) as caught:
        open_source(path, SourceConfig(reader=reader))  # type: ignore[arg-type]
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_batch_continues_after_bad_files(make_clip: MakeClip, tmp_path: Path) -> None:
    good = make_clip("plain.mp4")
    paths = [good, *(make(make_clip, tmp_path) for make, _ in BAD_FILES), good]
    outcomes = []
    for path in paths:
        try:
            with sampled(open_source(path)) as feed:
                outcomes.append(len(list(feed)))
        except SourceError:
            outcomes.append(-1)
    assert outcomes == [2, -1, -1, -1, -1, -1, -1, 2]


def test_a_truncated_file_gives_what_is_there_and_says_where_it_ends(
    make_clip: MakeClip, tmp_path: Path
) -> None:
    whole = make_clip(
        "faststart.mp4",
        make=noisy,
        codec_options=SHORT_GOPS,
        muxer_options={"movflags": "faststart"},
    ).read_bytes()
    path = tmp_path / "truncated.mp4"
    path.write_bytes(whole[: len(whole) // 2])
    with open_source(path) as source:
        numbers = [read_barcode(frame.image) for frame in source]
    assert numbers == list(range(len(numbers)))
    assert 20 <= len(numbers) <= 40
    end_s = len(numbers) / 30
    assert f"readable up to {end_s:.2f} s of the 2.00 s it declares" in source.warnings[-1]


@pytest.mark.parametrize("packet_index", [10, 22, 40, 45])
def test_damaged_packets_are_counted_and_no_smeared_frame_is_shown(
    make_clip: MakeClip, tmp_path: Path, packet_index: int
) -> None:
    """A11: the decoder conceals damage; frames after it look valid and show other numbers."""
    whole = make_clip("gops.mp4", make=noisy, codec_options=SHORT_GOPS)
    position, _, _ = video_packets(whole)[packet_index]
    broken = flip_bytes(whole, tmp_path / "broken.mp4", start=position, count=60)
    with open_source(broken) as source:
        frames = list(source)
    shown = [(read_barcode(frame.image), round(frame.pts_s * 30)) for frame in frames]
    assert all(number == place for number, place in shown)
    missing = set(range(60)) - {place for _, place in shown}
    next_key = -(-(packet_index + 1) // 20) * 20
    assert missing == set(range(packet_index, next_key))
    assert source.num_dropped == len(missing)
    assert "1 damaged packets" in source.warnings[0]


def test_damage_inside_pictures_shows_far_fewer_wrong_frames_than_a_plain_reader(
    make_clip: MakeClip, tmp_path: Path
) -> None:
    """A11: some flips decode without an error, so this is best effort; most are caught."""
    whole = make_clip("gops.mp4", make=noisy, codec_options=SHORT_GOPS)
    num_wrong = {"pyav": 0, "opencv": 0}
    for packet_index in range(2, 60, 9):
        position, size, _ = video_packets(whole)[packet_index]
        start, count = position + size // 3, min(60, size // 2)
        broken = flip_bytes(whole, tmp_path / f"{packet_index}.mp4", start=start, count=count)
        for reader in num_wrong:
            with open_source(broken, SourceConfig(reader=reader)) as source:  # type: ignore[arg-type]
                shown = [(read_barcode(f.image), round(f.pts_s * 30)) for f in source]
            num_wrong[reader] += sum(number != place for number, place in shown)
    assert num_wrong["opencv"] > 20
    assert num_wrong["pyav"] < num_wrong["opencv"] / 2


def test_joining_in_the_middle_waits_for_a_key_frame(make_clip: MakeClip, tmp_path: Path) -> None:
    """A11: forty packets of a transport stream are missing; times stay true to the stream."""
    whole = make_clip("gops.ts", make=noisy, codec_options=SHORT_GOPS)
    path = tmp_path / "joined.ts"
    path.write_bytes(whole.read_bytes()[40 * 188 :])
    with open_source(path) as source:
        frames = list(source)
    numbers = [read_barcode(frame.image) for frame in frames]
    assert numbers == list(range(numbers[0], 60))
    assert numbers[0] % 20 == 0
    assert source.num_dropped > 0
    assert frames[0].pts_s > 0
    np.testing.assert_allclose(np.diff([frame.pts_s for frame in frames]), 1 / 30, atol=1e-4)


def test_the_gate_gives_up_waiting_where_no_key_frame_ever_comes() -> None:
    gate = KeyFrameGate()
    passed = [gate.passes(False, order) for order in range(MAX_WAIT_FRAMES + 2)]
    assert passed.index(True) == MAX_WAIT_FRAMES
    assert all(passed[MAX_WAIT_FRAMES:])
    assert gate.num_dropped == MAX_WAIT_FRAMES


def test_the_gate_keeps_what_was_decoded_before_the_damage() -> None:
    gate = KeyFrameGate()
    assert gate.passes(True, 0)
    gate.damage(order=10)
    assert [gate.passes(False, order) for order in (8, 9, 10, 12)] == [True, True, False, False]
    assert gate.passes(True, 20)
    assert gate.passes(False, 21)
    assert gate.num_dropped == 10


@pytest.mark.parametrize("num_frames", [1, 3])
def test_fewer_frames_than_asked_come_once_each(make_clip: MakeClip, num_frames: int) -> None:
    """A08: nothing is repeated and nothing is negative."""
    path = make_clip(f"short-{num_frames}.mp4", numbers=range(num_frames), fps=2)
    with sampled(open_source(path), SourceConfig(sample_fps=8)) as feed:
        numbers = [read_barcode(frame.image) for frame in feed]
    assert numbers == list(range(num_frames))
    if num_frames > 1:
        assert any("frames are never repeated" in warning for warning in feed.warnings)


def test_auto_falls_back_where_pyav_cannot_open(
    make_clip: MakeClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(path: Path, config: SourceConfig) -> OpenCVSource:
        raise SourceOpenError(f"{path}: no such codec")

    monkeypatch.setitem(video_file.READERS._entries, "pyav", refuses)
    with open_source(make_clip("plain.mp4")) as source:
        assert isinstance(source, OpenCVSource)
        assert sum(1 for _ in source) == 60
    assert "read with opencv, because the default reader failed" in source.warnings[0]
    assert "no such codec" in source.warnings[0]


def test_a_reader_that_is_not_installed_says_how_to_get_it(
    make_clip: MakeClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(path: Path, config: SourceConfig) -> OpenCVSource:
        raise ImportError("libGL.so.1: cannot open shared object file")

    monkeypatch.setitem(video_file.READERS._entries, "opencv", missing)
    with pytest.raises(SourceOpenError, match=r"reader opencv is not available: libGL.*libgl1"):
        open_source(make_clip("plain.mp4"), SourceConfig(reader="opencv"))

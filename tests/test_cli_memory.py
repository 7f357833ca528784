"""Memory folders on the command line: watched once, asked often, checked, erased and exported."""

from __future__ import annotations

import base64
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from hermes_like.cli import run
from hermes_like.cli.folder import known, opened
from hermes_like.cli.options import build_config, stream_seconds
from hermes_like.cli.stream import watching
from hermes_like.errors import ConfigError
from hermes_like.models import load_model
from hermes_like.session import StreamSession
from hermes_like.sources import open_source

STAR, NOW = "what color was the star ?", "what is visible now ?"
CAPS = {
    "memory.device_tokens": 190,
    "store.disk_bytes": 16 * 2**20,
    "store.keyframe_bytes": 2 * 2**20,
    "store.host_bytes": 8 * 2**20,
    "store.min_free_bytes": 0,
    "store.durability": "none",
}
SETTINGS = [f"{key}={value}" for key, value in CAPS.items()]
SMALL = [word for setting in SETTINGS for word in ("--set", setting)]
ROOT = Path(__file__).parent.parent


def lines(text: str) -> list[dict[str, object]]:
    """JSON objects, one per line."""
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def video(sprites_video: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that a test may take away for a while."""
    return Path(shutil.copy2(sprites_video, tmp_path_factory.mktemp("film") / "film.mp4"))


@pytest.fixture(scope="module")
def watched(video: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The memory of the whole video; tests do not change it."""
    folder = tmp_path_factory.mktemp("memory") / "whole"
    start = "2026-05-01T14:00:00+02:00"
    words = ["ask", str(video), NOW, "--memory", str(folder), "--start-time", start]
    assert run([*words, *SMALL]) == 0
    return folder


@pytest.fixture
def copy(watched: Path, tmp_path: Path) -> Path:
    """A memory to be changed."""
    return Path(shutil.copytree(watched, tmp_path / "copy"))


def watch_some(video: Path | str, folder: Path, count: int, *settings: str) -> list[float]:
    """Watch so many more frames and break off; returns the times of those that came."""
    times: list[float] = []

    def watch() -> None:
        past = known(folder, None)
        config = build_config(settings=[*SETTINGS, *settings], stored=past.config)
        with watching(str(video), config, past=past) as (session, frames):
            for frame in frames:
                session.observe(frame)
                times.append(frame.pts_s)
                if len(times) == count:
                    break
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch()
    return times


def contents(folder: Path) -> list[tuple[bytes, tuple[bytes, ...]]]:
    """Frame hashes and stored bytes of all segments."""
    with opened(folder, None) as memory:
        tier = memory.store.segments
        records = [tier.get(head.segment_id) for head in tier.heads()]
        return [(r.head.content_key, tuple(map(bytes, r.layers))) for r in records]


# -- watched once ----------------------------------------------------------------------------------


def test_a_second_question_does_not_watch_again(
    video: Path, watched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in watched.glob("*.[vb]*")}
    hidden = video.rename(video.with_name("away.mp4"))
    try:
        assert run(["ask", str(video), NOW, STAR, "--memory", str(watched), "--json"]) == 0
    finally:
        hidden.rename(video)
    captured = capsys.readouterr()
    assert "nothing is watched again" in captured.err
    answers = lines(captured.out)
    assert [answer["text"] for answer in answers] == ["blue ring", "red"]
    assert answers[0]["asked_at_s"] == 23.0
    assert {path.name: path.read_bytes() for path in watched.glob("*.[vb]*")} == before


def test_memory_ask_takes_the_settings_of_the_first_call(
    watched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["memory", "ask", str(watched), STAR, "--route", "recall", "--json"]
    assert run(words) == 0
    (answer,) = lines(capsys.readouterr().out)
    assert (answer["text"], answer["route"], answer["stream"]) == ("red", "recall", "film.mp4")
    # A read from disk that was begun early may have reached RAM when it is needed.
    assert {span["tier"] for span in answer["evidence"]} & {"disk", "host"}
    assert run(["memory", "show", str(watched), "--json"]) == 0
    (stats,) = lines(capsys.readouterr().out)
    assert stats["device_tokens"] == 190
    assert stats["tiers"]["disk"][2] == 6
    assert run(["memory", "show", str(watched)]) == 0
    assert "24 frames, 6 segments" in capsys.readouterr().out


def test_since_and_until_bound_the_question(
    watched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["memory", "ask", str(watched), NOW, "--since", "0:02", "--until", "8"]
    assert run(words) == 0
    out = capsys.readouterr().out
    assert "red star" in out
    assert "route time" in out
    assert "from RAM)" in out or "from disk)" in out
    assert "on 2026-05-01 14:00:" in out
    assert run([*words[:-1], "soon"]) == 2
    assert "--until: expected seconds, M:SS or H:MM:SS, got 'soon'" in capsys.readouterr().err


def test_a_broken_off_video_is_gone_on_with(
    video: Path, watched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Frames, segments and stored bytes are those of a run without a break."""
    folder = tmp_path / "part"
    assert watch_some(video, folder, 10) == list(map(float, range(10)))
    assert watch_some(video, folder, 7) == list(map(float, range(10, 17)))
    assert "watching goes on from there" in capsys.readouterr().err
    assert run(["ask", str(video), NOW, STAR, "--memory", str(folder), "--json"]) == 0
    captured = capsys.readouterr()
    assert [answer["text"] for answer in lines(captured.out)] == ["blue ring", "red"]
    assert contents(folder) == contents(watched)
    assert run(["memory", "stat", str(folder), "--json"]) == 0
    (found,) = lines(capsys.readouterr().out)
    assert (found["num_frames"], found["num_segments"]) == (24, 6)
    assert found["watched"]["is_complete"]


def test_a_killed_video_is_gone_on_with(
    video: Path, watched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the state of the session, watching goes on behind the newest stored segment."""
    folder = tmp_path / "part"
    watch_some(video, folder, 10)
    (folder / "session.blob").unlink()
    assert watch_some(video, folder, 99) == list(map(float, range(8, 24)))
    assert len(contents(folder)) == 6
    assert contents(folder)[:2] == contents(watched)[:2]
    assert run(["ask", str(video), NOW, STAR, "--memory", str(folder), "--json"]) == 0
    captured = capsys.readouterr()
    assert [answer["text"] for answer in lines(captured.out)] == ["blue ring", "red"]
    assert "nothing is watched again" in captured.err


def test_duplicates_are_left_out_over_a_break(video: Path, tmp_path: Path) -> None:
    """The last frame before the break is what the next ones are compared with."""
    skip = "source.skip_duplicates=true", "source.duplicate_threshold=30"
    straight = watch_some(video, tmp_path / "straight", 99, *skip)
    assert 1 < len(straight) < 12, "expected duplicates in the video"
    first = watch_some(video, tmp_path / "part", 1, *skip)
    assert first + watch_some(video, tmp_path / "part", 99, *skip) == straight


def test_watch_leaves_out_questions_whose_time_is_over(
    video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, path = tmp_path / "part", tmp_path / "questions.json"
    path.write_text(json.dumps([{"at_s": at_s, "question": NOW} for at_s in (5.5, 9, 20)]))
    watch_some(video, folder, 10)
    words = ["watch", str(video), "--questions", str(path), "--memory", str(folder), "--json"]
    assert run(words) == 0
    captured = capsys.readouterr()
    assert "1 questions from before 0:09 are left out" in captured.err
    asked = [(answer["asked_at_s"], answer["text"]) for answer in lines(captured.out)]
    assert asked == [(9.0, "red star"), (20.0, "blue ring")]


def test_a_video_shorter_than_a_segment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing but the state of the session is in the folder then, with the settings beside it."""
    folder = tmp_path / "short"
    words = ["ask", "sprites:seed=3,frames=3", NOW, "--memory", str(folder), "--json"]
    assert run([*words, *SMALL]) == 0
    (first,) = lines(capsys.readouterr().out)
    assert not list(folder.glob("*.vol"))
    assert run(["memory", "ask", str(folder), NOW, "--json"]) == 0
    (second,) = lines(capsys.readouterr().out)
    assert (second["text"], second["asked_at_s"]) == (first["text"], 2.0)
    assert run(["memory", "stat", str(folder)]) == 0
    assert "watched to its end" in capsys.readouterr().out
    assert run(["memory", "ask", str(folder), NOW, "--set", "source.sample_fps=2"]) == 1
    assert "written by another model or format" in capsys.readouterr().err


def test_what_is_refused(
    video: Path, watched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "film.mp4"
    other.write_bytes(video.read_bytes() + b"more")
    full = tmp_path / "photos"
    full.mkdir(mode=0o755)
    (full / "one.jpg").touch()
    fast = ["--set", "source.sample_fps=2"]
    ask, skip = ["ask", str(video), NOW, "--memory"], ["--set", "source.skip_duplicates=true"]
    for words, code, message in (
        (["ask", str(other), NOW, "--memory", str(watched)], 2, "a memory holds one video"),
        ([*ask, str(watched), *skip], 2, "source.skip_duplicates False, got True"),
        ([*ask, str(watched), "--sample-fps", "2"], 2, "source.sample_fps 1.0, got 2.0"),
        (["memory", "ask", str(watched), NOW, *fast], 1, "sample_fps 1 -> 2"),
        ([*ask, str(full)], 2, "expected a memory, an empty folder or a new one"),
        ([*ask, str(tmp_path / "new"), "--set", "store.disk_bytes=0"], 2, "store.disk_bytes"),
        (["memory", "ask", str(full), NOW], 2, "expected the folder of a memory"),
        (["memory", "stat", str(full)], 2, "expected the folder of a memory"),
        (["memory", "verify", str(tmp_path / "none")], 2, "does not exist"),
    ):
        assert run(words) == code, words
        assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert [path.name for path in full.iterdir()] == ["one.jpg"]
    assert full.stat().st_mode & 0o777 == 0o755
    assert not (tmp_path / "new").exists()


def test_a_memory_that_was_made_in_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its settings come from the state of the session; caps that would drop data are refused."""
    folder = tmp_path / "made"
    config = build_config(settings=[*SETTINGS, "source.sample_fps=2", "store.codec=k8v4"])
    with StreamSession(load_model("sprites"), config, name="cam", folder=folder) as session:
        for frame in open_source("sprites:seed=3,frames=9"):
            session.observe(frame)
        want = session.ask(NOW)
    assert run(["memory", "ask", str(folder), NOW, "--json"]) == 0
    (answer,) = lines(capsys.readouterr().out)
    assert (answer["text"], answer["stream"]) == (want.text, "cam")
    assert run(["memory", "stat", str(folder)]) == 0
    assert "codec k8v4" in capsys.readouterr().out
    before = contents(folder)
    words = ["memory", "ask", str(folder), NOW, "--set"]
    assert run([*words, "store.disk_bytes=4194304", "--set", "store.keyframe_bytes=4096"]) == 2
    assert "would be dropped; set both" in capsys.readouterr().err
    assert run(["ask", "sprites:seed=3,frames=20", NOW, "--memory", str(folder)]) == 2
    assert "not a video that a command watched" in capsys.readouterr().err
    assert contents(folder) == before


# -- looked at -------------------------------------------------------------------------------------


def test_stat_tells_what_there_is(watched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", "stat", str(watched), "--json"]) == 0
    (found,) = lines(capsys.readouterr().out)
    assert (found["num_segments"], found["num_frames"], found["stream"]) == (6, 24, "film.mp4")
    assert found["stream_s"] == [0.0, 24.0]
    assert found["wall"] == ["2026-05-01T14:00:00+02:00", "2026-05-01T14:00:24+02:00"]
    assert (found["cap_bytes"], found["model"], found["codec"]) == (16 * 2**20, "sprites", "int8")
    assert found["tiers"]["source"][1] == 2 * 2**20
    blocks = sum(path.stat().st_blocks * 512 for path in watched.iterdir())
    assert found["used_bytes"] == blocks <= found["cap_bytes"]
    assert (found["state"], found["segments_after_checkpoint"], found["missing"]) == ("ok", 0, [])
    assert run(["memory", "stat", str(watched)]) == 0
    out = capsys.readouterr().out
    for part in ("film.mp4, watched to its end", "of 16.0 MiB", "codec int8", "6 with 24 frames"):
        assert part in out


def test_stat_and_verify_load_no_torch(watched: Path) -> None:
    script = (
        "import sys\nfrom hermes_like.cli import run\n"
        f"assert run(['memory', 'stat', {str(watched)!r}]) == 0\n"
        f"assert run(['memory', 'verify', {str(watched)!r}]) == 0\n"
        "assert not {'torch', 'transformers', 'av'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, capture_output=True)


def test_a_folder_that_is_written_to(
    video: Path, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    past = known(copy, None)
    with watching(str(video), build_config(stored=past.config), past=past):
        assert run(["memory", "stat", str(copy)]) == 0
        out = capsys.readouterr().out
        assert "in use by another process" in out
        assert "6 in the index so far, stream time 0:00-0:24" in out
        for words in (["verify", str(copy)], ["ask", str(copy), NOW], ["rebuild-index", str(copy)]):
            assert run(["memory", *words]) == 1
            assert "another process has the memory open" in capsys.readouterr().err


def test_damage_is_found_and_told_by_time(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", "verify", str(copy)]) == 0
    assert "6 segments and the pictures of 6 are whole" in capsys.readouterr().out
    with opened(copy, None) as memory:
        head = memory.store.segments.heads()[2]
        (volume,) = copy.glob("kv-*.vol")
        data = bytearray(volume.read_bytes())
        layer = bytes(memory.store.segments.get(2).layers[1])
    at = data.index(layer) + len(layer) // 2
    data[at] ^= 1
    volume.write_bytes(data)
    assert run(["memory", "verify", str(copy)]) == 1
    out = capsys.readouterr().out
    assert "5 segments and the pictures of 6 are whole" in out
    assert "damaged: 0:08-0:12: keys and values of segment 2 (checksum)" in out
    assert run(["memory", "verify", str(copy), "--json"]) == 1
    (report,) = lines(capsys.readouterr().out)
    assert [(loss["start_s"], loss["end_s"]) for loss in report["lost"]] == [(8.0, head.end_s)]
    words = ["memory", "ask", str(copy), NOW, "--since", "8", "--until", "11", "--json"]
    assert run(words) == 0
    (answer,) = lines(capsys.readouterr().out)
    assert answer["text"] == "red star", "expected an answer from the picture"
    assert {span["tier"] for span in answer["evidence"]} == {"source"}


def test_the_index_can_be_made_anew(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    want = contents(copy)
    (copy / "manifest.sqlite").write_bytes(b"not a database" * 1000)
    assert run(["memory", "rebuild-index", str(copy)]) == 0
    assert "12 records in the index" in capsys.readouterr().out
    assert run(["memory", "verify", str(copy)]) == 0
    assert contents(copy) == want


# -- forgotten -------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", ["n\n", ""])
def test_erasing_asks_first(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reply: str
) -> None:
    before = contents(copy)
    monkeypatch.setattr(sys, "stdin", io.StringIO(reply))
    assert run(["memory", "erase", str(copy), "--from", "0", "--to", "0:12"]) == 1
    assert "Erase 0:00 to 0:12" in capsys.readouterr().out
    assert contents(copy) == before


def test_what_was_erased_is_no_footage(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A22 as well: what is left keeps its numbers, and no evidence points into the hole."""
    kept = contents(copy)[3:]
    words = ["memory", "erase", str(copy), "--from", "0", "--to", "0:11", "--yes"]
    assert run(words) == 0
    assert "erased 0:00-0:12 (3 segments)" in capsys.readouterr().out
    assert contents(copy) == kept
    questions = ["what was visible at 0:05 ?", STAR, "what color was the ring ?"]
    assert run(["memory", "ask", str(copy), *questions, "--json"]) == 0
    gone, star, ring = lines(capsys.readouterr().out)
    assert gone["status"] == "no_footage"
    assert "no footage" in gone["text"]
    assert "erased" in gone["text"]
    assert [span["reason"] for span in gone["missing"]] == ["erased"]
    assert ring["text"] == "blue"
    for answer in (star, ring):
        assert all(s["segment_id"] >= 3 and s["start_s"] >= 12 for s in answer["evidence"])
    assert run(["memory", "stat", str(copy), "--json"]) == 0
    (found,) = lines(capsys.readouterr().out)
    assert found["missing"] == [[0.0, 12.0, "erased"]]
    assert run(["memory", "erase", str(copy), "--from", "20", "--to", "10", "--yes"]) == 2


def test_erasing_deeply_takes_what_came_later(
    copy: Path, video: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["memory", "erase", str(copy), "--from", "5", "--to", "6", "--yes", "--deep"]
    assert run(words) == 0
    assert "(5 segments)" in capsys.readouterr().out
    assert len(contents(copy)) == 1
    assert run(["ask", str(video), "what was visible at 0:20 ?", "--memory", str(copy)]) == 0
    captured = capsys.readouterr()
    assert "no footage" in captured.out
    assert "nothing is watched again" in captured.err, "expected erased footage to stay erased"


# -- encrypted -------------------------------------------------------------------------------------


def test_an_encrypted_memory_needs_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, path = tmp_path / "secret", tmp_path / "key"
    keys = [base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2)]
    path.write_text(keys[0])
    words = ["ask", "sprites:seed=3,frames=9", NOW, "--memory", str(folder)]
    assert run([*words, "--key-file", str(path), *SMALL]) == 0
    assert b"sprites:seed" not in (folder / "watched.blob").read_bytes()
    shown = capsys.readouterr()
    for variable, code, message in (
        (None, 1, "no key was given"), (keys[1], 1, "wrong key"), ("abc", 2, "is not base64"),
        (keys[0], 0, ""),
    ):  # fmt: skip
        if variable is None:
            monkeypatch.delenv("HERMES_LIKE_MEMORY_KEY", raising=False)
        else:
            monkeypatch.setenv("HERMES_LIKE_MEMORY_KEY", variable)
        for verb in (["stat", str(folder)], ["verify", str(folder)], ["ask", str(folder), NOW]):
            assert run(["memory", *verb]) == code
            shown = capsys.readouterr()
            assert message in shown.err
            assert not any(key in shown.out + shown.err for key in keys)
    monkeypatch.setenv("HERMES_LIKE_MEMORY_KEY", keys[1])
    for blob in folder.glob("*.vol"):
        blob.unlink()
    assert run(["memory", "ask", str(folder), NOW]) == 1, "no volume tells of the key here"
    assert "another key" in capsys.readouterr().err


# -- taken out -------------------------------------------------------------------------------------


def test_export(watched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hermes_like.codec import decode_block
    from hermes_like.tiers.keyframes import decode_picture

    plain, stored = tmp_path / "plain", tmp_path / "stored"
    assert run(["memory", "export", str(watched), str(plain)]) == 0
    assert "wrote 6 segments and 6 pictures" in capsys.readouterr().out
    assert run(["memory", "export", str(watched), str(stored), "--encoded"]) == 0
    assert run(["memory", "export", str(watched), str(plain)]) == 2
    assert "expected a new or an empty folder" in capsys.readouterr().err
    manifests = [json.loads((out / "manifest.json").read_text()) for out in (plain, stored)]
    assert [manifest["is_encoded"] for manifest in manifests] == [False, True]
    assert manifests[0]["fingerprint"]["hard"]["model"] == "sprites"
    with opened(watched, None) as memory:
        for entry in manifests[0]["segments"]:
            record = memory.store.segments.get(entry["segment_id"])
            pictures = memory.store.keyframes.get(entry["segment_id"])
            decoded, encoded = load_file(plain / entry["file"]), load_file(stored / entry["file"])
            for layer, data in enumerate(record.layers):
                block = decode_block(data)
                assert np.array_equal(decoded[f"layers.{layer}.raw_keys"], block.raw_keys)
                assert np.array_equal(decoded[f"layers.{layer}.values"], block.values)
                assert encoded[f"layers.{layer}.block"].tobytes() == bytes(data)
            assert np.array_equal(decoded["vectors"], record.head.vectors)
            (picture,) = entry["pictures"]
            image = decode_picture((plain / picture["file"]).read_bytes())
            assert np.array_equal(image, decode_picture(pictures.images[0].data))
    modes = {path.stat().st_mode & 0o777 for path in plain.iterdir()}
    assert (modes, plain.stat().st_mode & 0o777) == ({0o600}, 0o700)


# -- cases from the field --------------------------------------------------------------------------


def test_a25_memory_reaches_a_plateau(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes on the disk and slots on the device stay under their caps however long it watches."""
    folder, cap = tmp_path / "long", 4 * 2**20
    settings = [*SETTINGS, f"store.disk_bytes={cap}", "store.keyframe_bytes=1048576"]
    settings += ["store.codec=raw", "store.host_bytes=2097152"]
    sizes: list[int] = []
    past = known(folder, None)
    config, reference = build_config(settings=settings), "sprites:seed=5,frames=176"
    with watching(reference, config, past=past) as (session, frames):
        for index, frame in enumerate(frames):
            session.observe(frame)
            if index % 8 == 7:
                assert session.long_term is not None
                session.long_term.flush()
                blocks = {path: path.stat().st_blocks * 512 for path in folder.iterdir()}
                assert sum(blocks.values()) <= cap
                pictures = [path for path in blocks if path.name.startswith("keyframes")]
                sizes.append(sum(blocks.values()) - sum(blocks[path] for path in pictures))
        assert session.stats().peak_slots <= 190
    assert max(sizes[16:]) <= 1.1 * max(sizes[:16]), "expected a plateau"
    assert run(["memory", "stat", str(folder), "--json"]) == 0
    (found,) = lines(capsys.readouterr().out)
    assert found["num_frames"] == 176
    assert found["tiers"]["disk"][2] < 40, "expected the oldest keys and values to have gone"
    assert found["num_pictures_only"] == 44 - found["tiers"]["disk"][2]


@pytest.mark.parametrize(
    "question",
    ["what was visible yesterday ?", "what was visible at 9:30 ?", "what was visible at 14:30 ?"],
)
def test_a27_no_past_is_invented(
    watched: Path, capsys: pytest.CaptureFixture[str], question: str
) -> None:
    assert run(["memory", "ask", str(watched), question, "--json"]) == 0
    (answer,) = lines(capsys.readouterr().out)
    assert answer["status"] == "no_footage"
    assert answer["text"].startswith("There is no footage")
    assert answer["num_tokens"] == 0, "expected the words of code, not of the model"


@pytest.mark.parametrize(
    ("text", "seconds"), [("83", 83.0), ("1:23", 83.0), ("0:01.5", 1.5), ("1:02:03", 3723.0)]
)
def test_stream_seconds(text: str, seconds: float) -> None:
    assert stream_seconds(text, "--from") == seconds


@pytest.mark.parametrize("text", ["-1", "inf", "nan", "1:2:3:4", "1:5", ""])
def test_stream_seconds_refuses(text: str) -> None:
    with pytest.raises(ConfigError, match="--from: expected seconds"):
        stream_seconds(text, "--from")


def test_the_old_name_still_works_and_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert "show-memory" not in out
    assert "memory" in out
    assert run(["show-memory", "--help"]) == 0
    assert run(["memory", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(verb in out for verb in ("ask", "stat", "verify", "rebuild-index", "export"))

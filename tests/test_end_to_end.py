"""The whole path: a video file goes in, right answers with right evidence come out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hermes_like.config import HermesConfig, MemoryConfig, ModelConfig, PolicyConfig, SourceConfig
from hermes_like.frames import sampled
from hermes_like.models import load_model
from hermes_like.presets import load_config
from hermes_like.records import Answer, Frame
from hermes_like.session import StreamSession
from hermes_like.sources import open_source
from hermes_like.sprites.questions import draw_question
from hermes_like.sprites.render import render_frame
from hermes_like.sprites.stories import draw_story
from hermes_like.sprites.video import write_story_video
from hermes_like.sprites.world import Event, Sprite, Story
from tests.sources.real_clips import real_clips  # noqa: F401  (a fixture)

STORY = Story(
    (
        Event((Sprite("star", "red", "left", 3),), 4),
        Event((), 2),
        Event((Sprite("ring", "blue", "right", 7),), 4),
        Event((Sprite("heart", "green", "top"),), 4),
        Event((Sprite("moon", "white", "bottom", 1),), 4),
    )
)


@pytest.fixture(scope="module")
def sprites():
    return load_model("sprites")


@pytest.fixture(scope="module")
def video(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("video") / "story.mp4"
    write_story_video(STORY, path, seed=1)
    return path


def watch(model, video: Path, config: HermesConfig) -> StreamSession:
    session = StreamSession(model, config, name=video.name)
    with open_source(video, config.source) as source, sampled(source, config.source) as feed:
        for frame in feed:
            session.observe(frame)
    return session


@pytest.fixture(scope="module")
def session(sprites, video):
    with watch(sprites, video, load_config("sprites", env={})) as opened:
        yield opened


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("what is visible now ?", "white moon"),
        ("what color was the star ?", "red"),
        ("which number did the blue ring have ?", "7"),
        ("was there a green heart ?", "yes"),
        ("was there a red ring ?", "no"),
        ("where was the star ?", "left"),
        ("what came after the blue ring ?", "green heart"),
    ],
)
def test_questions_about_a_video_file(session, question: str, answer: str) -> None:
    assert session.ask(question, keep_conversation=False).text == answer


@pytest.mark.parametrize(
    ("question", "event"),
    [("what color was the star ?", 0), ("which number did the blue ring have ?", 2)],
)
def test_evidence_names_the_moment(session, question: str, event: int) -> None:
    """The strongest span overlaps the event that holds the truth and is not much longer."""
    start = float(STORY.start_frame(event))
    end = start + STORY.events[event].num_frames
    span = session.ask(question, keep_conversation=False).evidence[0]
    assert span.start_s < end
    assert span.end_s > start
    assert span.end_s - span.start_s <= 6
    assert span.stream == "story.mp4"
    assert span.score > 0.3


def test_answers_carry_timings_and_the_moment(session) -> None:
    answer = session.ask("what is visible now ?", keep_conversation=False)
    assert isinstance(answer, Answer)
    assert answer.status == "ok"
    assert answer.asked_at_s == STORY.num_frames - 1
    assert 0 < answer.ttft_s < 30
    assert answer.num_tokens == 2


def test_the_past_is_forgotten_by_a_window_and_kept_by_hermes(sprites) -> None:
    """Equal device_tokens; the event is older than the window and younger than the stream."""
    rng = np.random.default_rng(5)
    filler = draw_story(rng, 70, min_event_frames=2)
    clean = tuple(
        e
        for e in filler.events
        if not any(s.shape == "star" or s.color == "red" for s in e.sprites)
    )
    story = Story((*clean[:3], Event((Sprite("star", "red", "left"),), 4), *clean[3:]))
    answers = {}
    for name in ("window", "hermes"):
        config = load_config(name, env={})
        with StreamSession(sprites, config) as session:
            for index, shown in enumerate(story.frames()):
                picture = render_frame(shown, np.random.default_rng(index))
                session.observe(frame_of(picture, index))
            assert session.stats().peak_slots <= config.memory.device_tokens
            answers[name] = session.ask("was there a red star ?").text
            held = session.memory.resident_frames()
            first = story.start_frame(3)
            assert (first in held) == (name == "hermes")
    assert answers["hermes"] == "yes"


def frame_of(picture, index: int):
    return Frame(picture, index, float(index))


def test_drawn_questions_on_drawn_streams(sprites) -> None:
    """Held-out streams with everything resident: now, recall and exists, mostly right."""
    right = asked = 0
    for seed in range(6):
        rng = np.random.default_rng(90_000 + seed)
        story = draw_story(rng, 16)
        with StreamSession(sprites, load_config("full", env={})) as session:
            for index, shown in enumerate(story.frames()):
                session.observe(frame_of(render_frame(shown, rng), index))
            for type in ("now_what", "recall_color", "recall_shape", "exists_pair", "recall_where"):
                question = draw_question(rng, story, type)
                if question is not None:
                    asked += 1
                    answer = session.ask(question.text, keep_conversation=False)
                    right += answer.text == question.answer
    assert asked >= 24
    assert right / asked >= 0.85, f"{right} of {asked}"


@pytest.mark.parametrize("name", ["bikes", "bigbuckbunny"])
def test_real_clips_go_the_whole_way(real_clips, name: str) -> None:  # noqa: F811
    """Real codecs, sizes and times, on the true architecture with random weights."""
    model = load_model(ModelConfig(name="random:llava-onevision-tiny", device="cpu"))
    config = HermesConfig(
        source=SourceConfig(sample_fps=4.0),
        memory=MemoryConfig(device_tokens=420, question_tokens=120),
        policy=PolicyConfig(name="hermes"),
    )
    with watch(model, real_clips[name], config) as session:
        stats = session.stats()
        assert stats.num_frames >= 15
        assert stats.peak_slots <= 420
        session.memory.check()
        answer = session.ask("what is going on ?", min_tokens=5)
        assert answer.status == "ok"
        for span in answer.evidence:
            assert 0 <= span.start_s <= span.end_s <= stats.stream_s + 1

"""Reading from the disk while the question passes through the model: sooner, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_like.models import load_model
from hermes_like.presets import load_config
from hermes_like.session import StreamSession
from hermes_like.sprites.source import open_sprites
from pipelines.ttft import empty_host


@pytest.mark.parametrize("route", ["time", "recall"])
def test_what_a_named_time_needs_is_asked_for_before_the_search(
    route: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config("sprites", {"answer.keep_conversation": "false"}, {})
    with StreamSession(load_model("sprites"), config, folder=tmp_path / "memory") as session:
        with open_sprites("sprites:seed=5,frames=64", config.source) as source:
            for frame in source:
                session.observe(frame)
        consultant, long_term = session._desk._consultant, session.long_term
        assert long_term is not None
        assert not consultant.reads_ahead, "a CPU has no time to spare"
        order: list[str] = []
        prefetch, find = long_term.chain.prefetch, consultant._retriever.find
        monkeypatch.setattr(
            long_term.chain, "prefetch", lambda ids: order.append("read") or prefetch(ids)
        )
        monkeypatch.setattr(
            consultant._retriever, "find", lambda *args: order.append("search") or find(*args)
        )

        def ask() -> tuple[str, list[str], list[int]]:
            empty_host(session)
            order.clear()
            answer = session.ask(
                "what color was the star ?", route=route, since_s=4.0, until_s=20.0
            )
            assert not answer.missing
            return answer.text, list(order), [span.segment_id for span in answer.evidence]

        before = ask()
        consultant.reads_ahead = True
        after = ask()
    assert before[1] == ["search", "read"]
    assert after[1] == (["read", "search", "read"] if route == "time" else ["search", "read"])
    assert (before[0], before[2]) == (after[0], after[2])

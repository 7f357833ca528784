"""Time to the first token against stream length and tier, with its parts, and bytes per tier.

    python -m pipelines.ttft --lengths 60,600,3600
    python -m pipelines.ttft                          up to a day of stream: some 20 minutes

One session with a folder runs through all lengths under the preset's caps; pictures of a short film
come again and again, their vision tokens computed once. At each length questions are asked whose
frames come from the device alone, from RAM, from disk (RAM is emptied before) and from stored
pictures (as if keys and values had been dropped at the cap). Disk reads hit the page cache of the
system, as they would soon after writing. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import copy
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hermes_like.errors import SegmentUnavailableError
from hermes_like.models import ModelAdapter, load_model
from hermes_like.presets import load_config, preset_path
from hermes_like.records import Frame, Image, Route
from hermes_like.retrieval.clock import StreamClock
from hermes_like.retrieval.planner import plan_question
from hermes_like.session import StreamSession
from hermes_like.sprites.source import open_sprites
from pipelines.long_jobs import anonymous_bytes, use_weights
from pipelines.long_views import StudySession, View, Watched
from pipelines.reporting import bundled_model, print_header, save_config
from pipelines.ttft_report import print_report
from pipelines.ttft_shapes import shape_bytes

LENGTHS = "60,600,3600,28800,86400"
TIERS = ("device", "host", "disk", "source")
NUM_PICTURES = 256
QUESTIONS = (
    "what color was the star ?",
    "which number was on the blue ring ?",
    "where was the green square ?",
    "which object carried number 3 ?",
    "what digit did the orange moon show ?",
)
NOW_QUESTION = "what is visible now ?"


class Film:
    """A model whose vision tokens of some pictures are known; others go through its tower.

    Args:
        model: Answers everything else.
        pictures: Of one size.
    """

    def __init__(self, model: ModelAdapter, pictures: Sequence[Image]) -> None:
        self._model = model
        tokens = torch.cat([model.embed_frames([picture]) for picture in pictures])
        self._known = {self._key(p): tokens[i : i + 1] for i, p in enumerate(pictures)}
        assert len(self._known) == len(pictures), "two pictures look alike"

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    @staticmethod
    def _key(picture: Image) -> bytes:
        return picture[::6, ::6].tobytes()

    def embed_frames(self, images: Sequence[Image]) -> Tensor:
        """Look the vision tokens up, or compute them."""
        known = [self._known.get(self._key(image)) for image in images]
        found = [tokens for tokens in known if tokens is not None]
        return torch.cat(found) if len(found) == len(images) else self._model.embed_frames(images)


class WithoutKeys:
    """Tiers that have lost all keys and values, and have their pictures."""

    def __init__(self, chain: Any) -> None:
        self._chain = chain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chain, name)

    def get(self, segment_id: int, deadline_s: float | None = None) -> Any:
        """Nothing is there."""
        raise SegmentUnavailableError(segment_id, "absent")

    def prefetch(self, segment_ids: Sequence[int]) -> int:
        """Nothing is brought."""
        return 0


class Parts:
    """Clocks inside one question."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def watch(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same work, with its time added up."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.clock(name):
                return work(*args, **kwargs)

        return timed

    @contextmanager
    def clock(self, name: str) -> Iterator[None]:
        """Add the time of a block."""
        started_s = time.perf_counter()
        yield
        spent_s = time.perf_counter() - started_s
        self.seconds[name] = self.seconds.get(name, 0.0) + spent_s


class Stopwatch:
    """Asks a session with clocks at every part.

    Args:
        session: Is asked.
    """

    def __init__(self, session: StudySession) -> None:
        self.session, self.parts = session, Parts()
        self._keys = self._view("recall", session.long_term)
        bare = copy.copy(session.long_term)
        bare.chain = WithoutKeys(bare.chain)  # type: ignore[union-attr, assignment]
        self._pictures = self._view("recall", bare)
        self._now = self._view("now", session.long_term)

    def _view(self, route: Route, long_term: Any) -> View:
        twin, parts = copy.copy(long_term), self.parts
        twin._decode = parts.watch("decode", twin._decode)
        watched = Watched(self.session.memory, twin, self.session.config.retrieval)
        retriever = watched._retriever
        retriever.find = parts.watch("search", retriever.find)  # type: ignore[method-assign]
        return View(route, watched, self.session.views[0].scanner, route)

    def ask(self, tier: str, question: str) -> dict[str, Any]:
        """One question whose frames come from a tier; milliseconds."""
        view = {"device": self._now, "source": self._pictures}.get(tier, self._keys)
        if tier == "disk":
            empty_host(self.session)
        self.parts.seconds.clear()
        asked = self.session.ask_through(view, question)
        answer, seconds = asked.answer, dict(self.parts.seconds)
        plan_s = self._plan_s(question)
        index_s = answer.parts_s.get("index", 0.0)
        fetch_s = answer.parts_s.get("fetch", 0.0)
        search_s, decode_s = seconds.get("search", 0.0), seconds.get("decode", 0.0)
        merge_s = answer.parts_s.get("merge", 0.0)
        assert view.consultant is not None
        found = {
            "ttft": answer.ttft_s,
            "plan": plan_s,
            "query": index_s - search_s,
            "search": search_s,
            "read": fetch_s - decode_s,
            "decode": decode_s,
            "merge": merge_s,
            "prefill": answer.ttft_s - plan_s - index_s - fetch_s - merge_s,
        }
        tiers = view.consultant.last.tiers
        return {name: 1e3 * value for name, value in found.items()} | {
            "frames": len(asked.frames),
            "tiers": sorted(set(tiers.values())),
        }

    def _plan_s(self, question: str) -> float:
        started_s = time.perf_counter()
        stats = self.session.stats()
        asked_s = time.perf_counter()
        clock = StreamClock(stats.stream_s, 0.0, None)
        plan_question(question, clock=clock, config=self.session.config.retrieval)
        assert asked_s >= started_s
        return time.perf_counter() - asked_s


def empty_host(session: StreamSession) -> None:
    """Ask for all the room of the host, and give it back: what is stored is on disk alone then."""
    long_term = session.long_term
    assert long_term is not None
    long_term.flush()
    host = long_term.chain.stats().tiers["host"]
    held = 0
    step = host.cap_bytes
    while step:
        if long_term.chain.reserve_host(step):
            held += step
        step //= 2
    long_term.chain.reserve_host(-held)


def measure(watch: Stopwatch, repeats: int) -> dict[str, list[dict[str, Any]]]:
    """All tiers at the length that the session has reached."""
    found: dict[str, list[dict[str, Any]]] = {}
    for tier in TIERS:
        questions = [QUESTIONS[i % len(QUESTIONS)] for i in range(repeats)]
        questions = [NOW_QUESTION] * repeats if tier == "device" else questions
        for question in dict.fromkeys(questions):
            watch.ask("host" if tier == "disk" else tier, question)  # warm-up, and to RAM
        found[tier] = [watch.ask(tier, question) for question in questions]
    return found


def bytes_now(session: StudySession) -> dict[str, Any]:
    """What everything takes at this moment."""
    stats, long_term = session.stats(), session.long_term
    assert long_term is not None
    return {
        "rss_anon": anonymous_bytes(),
        "device": stats.device_bytes,
        "written": long_term.written_bytes,
        "index": long_term.index.num_bytes,
        "rows": long_term.index.num_rows,
        "timeline": long_term.timeline.num_bytes,
        "tiers": {name: list(values) for name, values in stats.tiers.items()},
        "store_state": stats.store_state,
    }


def run(args: argparse.Namespace, config: Any) -> list[dict[str, Any]]:
    """Go through all lengths."""
    model = load_model("sprites")
    with open_sprites(f"sprites:seed=5,frames={NUM_PICTURES}", load_config().source) as source:
        pictures = [frame.image for frame in source]
    film = Film(model, pictures)
    folder = Path(tempfile.mkdtemp(dir=args.out, prefix="memory_"))
    found = []
    try:
        with StudySession(film, config, codecs=(config.store.codec,), folder=folder) as session:  # type: ignore[arg-type]
            watch, seen, ingest_s = Stopwatch(session), 0, 0.0
            for length in map(int, args.lengths.split(",")):
                started_s = time.perf_counter()
                for index in range(seen, length):
                    picture = pictures[index % len(pictures)]
                    session.observe(Frame(picture, index, float(index)))
                ingest_s += time.perf_counter() - started_s
                seen = length
                taken = bytes_now(session)  # as it is while watching: asking empties the host
                found.append({
                    "frames": length, "asked": measure(watch, args.repeats), "bytes": taken,
                    "ingest_s": round(ingest_s, 1),
                })  # fmt: skip
                print(f"  {length} frames after {ingest_s:.0f} s of watching", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", default=LENGTHS, help="seconds of stream, ascending")
    parser.add_argument("--repeats", type=int, default=15, help="questions per length and tier")
    parser.add_argument("--preset", default="sprites")
    parser.add_argument(
        "--policy", default="window", help="on the device; a quick one, TTFT does not depend on it"
    )
    parser.add_argument("--codec", default="int8")
    parser.add_argument("--check", default="", help="random:<shapes>, bytes checked with a session")
    parser.add_argument("--weights", type=Path, help="other weights than the bundled ones")
    parser.add_argument("--out", type=Path, default=Path("runs/ttft"))
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and report."""
    args = parse(argv)
    torch.set_num_threads(1)
    started = time.perf_counter()
    use_weights(args.weights)
    args.out.mkdir(parents=True, exist_ok=True)
    overrides = {
        "policy.name": args.policy,
        "memory.prefill_frames": "4",
        "store.codec": args.codec,
        "answer.keep_conversation": "false",
    }
    config = load_config(args.preset, overrides, {})
    saved = save_config(config, args.out / "ttft.yaml")
    facts: dict[str, Any] = {
        "model": bundled_model(),
        "preset": str(preset_path(args.preset)),
        "resolved config": str(saved),
        "policy": args.policy,
        "codec": args.codec,
        "device_tokens": config.memory.device_tokens,
        "warm-up": "every question once at each length and tier",
        "repeats": args.repeats,
    }
    where = print_header("time to the first token by tier", facts)
    found = run(args, config)
    names = [name for name in args.check.split(",") if name]
    shapes = shape_bytes(names)
    print_report(found, shapes, {**where, **facts}, args.out, time.perf_counter() - started)
    return 0


if __name__ == "__main__":
    sys.exit(main())

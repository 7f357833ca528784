"""What the model itself would look at: attention on the frames of an unlimited cache.

The bound for any choice of heads: if the model's own attention does not find an event among all
frames, no index made of its keys can be blamed. Affordable on short streams only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hermes_like.config import HermesConfig
from hermes_like.index import SegmentIndex
from hermes_like.memory import provenance
from hermes_like.memory.attention import AttentionProbe
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.models import ModelAdapter
from hermes_like.retrieval.queries import question_queries
from hermes_like.retrieval.similarity import scorer
from hermes_like.retrieval.vectors import Heads
from hermes_like.session import Segment, StreamSession
from hermes_like.sprites.source import SpritesSource
from pipelines.calibrate_record import head_of
from pipelines.calibrate_search import Variant
from pipelines.calibrate_streams import Asked, PlantedStream

#: Newest frames that are never counted as found.
NEWEST_FRAMES = 4
#: Name of a scorer to the ranks of the events asked about, by question type.
Ranks = dict[str, dict[str, list[int]]]


def oracle_ranks(
    model: ModelAdapter,
    config: HermesConfig,
    stream: PlantedStream,
    seed: int,
    heads: Heads,
    variant: Variant,
) -> Ranks:
    """Rank the planted events by attention mass and by the chosen heads, in the same session.

    Args:
        model: The model.
        config: With a policy that keeps everything.
        stream: What is shown and asked; only questions about the past count.
        seed: Of the pixels.
        heads: The chosen heads.
        variant: How their scores are made.
    """
    per_frame = model.dims.tokens_per_frame
    index = SegmentIndex(len(heads), model.dims.head_dim)
    ranks: Ranks = {name: {} for name in ("attention", "attention, evidence heads", "chosen")}

    def keep(segment: Segment) -> None:
        index.add(head_of(segment, heads, per_frame, variant.groups))

    waiting = [asked for asked in stream.asked if asked.planted is not None]
    with (
        StreamSession(model, config, on_segment=keep) as session,
        SpritesSource(stream.story, seed=seed) as source,
    ):
        for number, frame in enumerate(source, start=1):
            session.observe(frame)
            while waiting and waiting[0].frame == number:
                asked = waiting.pop(0)
                for name, scores in _scores(session, asked, heads, variant, index).items():
                    ranks[name].setdefault(asked.type, []).append(_rank(scores, asked))
    return ranks


def _scores(
    session: StreamSession, asked: Asked, heads: Heads, variant: Variant, index: SegmentIndex
) -> dict[str, dict[int, float]]:
    model = session.model
    prompt = model.question_ids(asked.text, is_first=True)
    with session._fork() as (cache, _):
        queries = question_queries(session.memory, cache, prompt, heads)
        everything = AttentionProbe(rows=torch.arange(len(prompt)))
        _run(session, cache, prompt, everything)
        # What an answer's evidence is read from: a model's evidence heads, as the answer starts.
        evidence = AttentionProbe(heads=model.evidence_heads)
        _run(session, cache, prompt, evidence)
        ids = [slots.ids for slots in cache.layers]
        found = index.top(scorer(queries, index, variant.config))
        return {
            "attention": _by_frame(everything.mass, ids, model.dims.tokens_per_frame),
            "attention, evidence heads": _by_frame(evidence.mass, ids, model.dims.tokens_per_frame),
            "chosen": dict(zip(found.frames.tolist(), found.scores.tolist(), strict=True)),
        }


def _run(
    session: StreamSession, cache: HierarchicalCache, prompt: Sequence[int], probe: AttentionProbe
) -> None:
    """Pass a question behind a cache and forget it."""
    model = session.model
    embeds = torch.cat([model.video_end(), model.embed_text(prompt)])
    with cache.fork() as twin:
        ids = -1 - twin.layers[0].length - torch.arange(embeds.shape[0])
        session.memory.extend(twin, embeds, ids, probe=probe)


def _by_frame(
    mass: dict[int, Tensor], ids: Sequence[Tensor], tokens_per_frame: int
) -> dict[int, float]:
    """Attention mass of each frame, summed over layers, averaged over rows."""
    sums: dict[int, float] = {}
    for layer, rows in mass.items():
        frames = provenance.frames_of(ids[layer], tokens_per_frame).numpy()
        weights = rows.mean(0)[: frames.shape[0]].numpy()
        counted = np.bincount(frames[frames >= 0], weights=weights[frames >= 0])
        for frame, value in enumerate(counted.tolist()):
            sums[frame] = sums.get(frame, 0.0) + value
    return sums


def _rank(scores: dict[int, float], asked: Asked) -> int:
    """How many frames besides the event's own score at least as well as its best."""
    assert asked.planted is not None
    event = range(asked.planted.start_frame, asked.planted.end_frame)
    best = max((scores[frame] for frame in event if frame in scores), default=-np.inf)
    last = asked.frame - NEWEST_FRAMES
    return sum(
        score >= best for frame, score in scores.items() if frame not in event and frame < last
    )

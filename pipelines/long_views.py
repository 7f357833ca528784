"""One stream in one session, asked through several memories: codecs, routes, an oracle.

Keys and values are stored once, raw. A *view* answers as a session would that had stored them with
another codec (each segment that is read is encoded and decoded on its way), had been forced onto
another route, searched with other heads, or had been told where to look. All views share the device
state, so that their answers differ by what the view changes and by nothing else.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hermes_like.codec import CODECS, decode_block
from hermes_like.config import HermesConfig
from hermes_like.consult import Consultant, Consulted, Search
from hermes_like.index import Scorer, SegmentIndex
from hermes_like.long_term import LongTermMemory
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.provenance import FrameTable
from hermes_like.memory.segment import Segment
from hermes_like.models import ModelAdapter
from hermes_like.records import Answer, Route, Tier
from hermes_like.retrieval.base import Constraints, FloatArray, Found, Hit, ResidentFrames
from hermes_like.retrieval.similarity import SimilarityRetriever, scorer
from hermes_like.scan import Scanner
from hermes_like.session import StreamSession
from hermes_like.tiers import SegmentRecord, TierChain

#: Views beside the codecs: memory whatever the question, the device alone, the true frames, the
#: recipe of the literature (all layers and heads, one mean query, raw dot products), and the best
#: frames of each retrieval head in turn instead of the best sums.
EXTRAS = ("always", "resident", "oracle", "recipe", "each")

#: Segments of which the other encoding is kept: questions about one needle meet the same ones.
LATEST_SEGMENTS = 256


class RecodedChain:
    """Tiers whose segments come back as if they had been stored with another codec.

    Args:
        chain: Holds raw segments.
        codec: Name of the codec.
    """

    def __init__(self, chain: TierChain, codec: str) -> None:
        self._chain, self._codec = chain, CODECS.get(codec)()
        self._latest: OrderedDict[int, tuple[bytes, ...]] = OrderedDict()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chain, name)

    def get(self, segment_id: int, deadline_s: float | None = None) -> tuple[SegmentRecord, Tier]:
        """See :class:`TierChain`."""
        record, tier = self._chain.get(segment_id, deadline_s)
        if segment_id not in self._latest:
            layers = tuple(self._codec.encode(decode_block(layer)) for layer in record.layers)
            self._latest[segment_id] = layers
            if len(self._latest) > LATEST_SEGMENTS:
                self._latest.popitem(last=False)
        return SegmentRecord(record.head, self._latest[segment_id]), tier


class Watched(Consultant):
    """A consultant that remembers what came of the last question."""

    last: Consulted = Consulted()

    def consult(self, search: Search, cache: HierarchicalCache, table: FrameTable) -> Consulted:
        """See :class:`Consultant`."""
        self.last = super().consult(search, cache, table)
        return self.last


class Told(Watched):
    """A consultant that is told which frames to bring back."""

    frames: Sequence[int] = ()

    def _find(self, search: Search, cache: HierarchicalCache) -> Found:
        segments = [(self.long_term.timeline.segment_of(frame), frame) for frame in self.frames]
        return Found(tuple(Hit(s.segment_id, frame, 1.0) for s, frame in segments if s is not None))


class EachHead(SimilarityRetriever):
    """The best frames of every head in turn, whatever the other heads say of them."""

    def find(
        self,
        queries: FloatArray,
        index: SegmentIndex,
        constraints: Constraints,
        resident: ResidentFrames,
    ) -> Found:
        """See :class:`SimilarityRetriever`."""
        most = constraints.max_frames
        whole = super().find(queries, index, replace(constraints, max_frames=0), resident)
        if not queries.size or not len(index):
            return whole
        score = scorer(queries, index, self.config)
        lists = []
        for head in range(score.weights.shape[1]):
            others = np.arange(score.weights.shape[1]) != head
            weights, offsets = score.weights.copy(), score.offsets.copy()
            weights[:, others], offsets[:, others] = 0.0, 0.0
            ranking = index.top(
                Scorer(weights, offsets),
                most * (2 * constraints.gap_frames + 1),
                start_s=constraints.start_s,
                end_s=constraints.end_s,
                exclude=constraints.exclude.union(resident.frames.tolist()),
            )
            columns = (ranking.segments.tolist(), ranking.frames.tolist(), ranking.scores.tolist())
            lists.append([Hit(*row) for row in zip(*columns, strict=True)])
        taken: set[int] = set()
        chosen: list[Hit] = []
        iterators = [iter(hits) for hits in lists]
        while len(chosen) < most and iterators:
            for hits in list(iterators):
                hit = next((hit for hit in hits if hit.frame not in taken), None)
                if hit is None:
                    iterators.remove(hits)
                elif len(chosen) < most:
                    chosen.append(hit)
                    gap = constraints.gap_frames
                    taken.update(range(hit.frame - gap, hit.frame + gap + 1))
        return Found(tuple(chosen), whole.best_resident)


@dataclass(slots=True, eq=False)
class View:
    """A way to ask.

    Attributes:
        name: As in the tables.
        consultant: Brings the past.
        scanner: Counts and lists.
        route: Taken whatever the words say; None: as routed.
        groups: Question groups that are asked through it.
    """

    name: str
    consultant: Watched | None = None
    scanner: Scanner | None = None
    route: Route | None = None
    groups: frozenset[str] = frozenset({"now", "recall", "exists_yes", "exists_no"})


class StudySession(StreamSession):
    """A session that can be asked through views.

    Args:
        model: See :class:`StreamSession`.
        config: See :class:`StreamSession`; with a store, its codec must be ``raw``.
        codecs: A view for each.
        num_scanned: So many of the first codecs are asked whether something was that never was:
            a scan takes longest to say no.
        extras: Further views, of ``EXTRAS``.
        folder: See :class:`StreamSession`.
    """

    def __init__(
        self,
        model: ModelAdapter,
        config: HermesConfig,
        *,
        codecs: Sequence[str] = (),
        extras: Sequence[str] = (),
        num_scanned: int = 1,
        folder: Any = None,
    ) -> None:
        super().__init__(model, config, folder=folder, on_segment=self._on_closed)
        self._side: LongTermMemory | None = None
        self._twins: dict[str, LongTermMemory] = {}
        self.views = [View("-")]
        if self.long_term is not None:
            self.views = self._views(codecs, extras)
            for view in self.views[num_scanned : len(codecs)]:
                view.groups = view.groups - {"exists_no"}

    def _views(self, codecs: Sequence[str], extras: Sequence[str]) -> list[View]:
        views = [self._view(codec, self._recoded(codec)) for codec in codecs]
        first = codecs[0]
        for view in views[1:]:
            view.groups = view.groups - {"now"}  # the present does not come from the store
        if "always" in extras:
            views.append(self._view(f"{first}, always", self._recoded(first), "recall"))
        if "resident" in extras:
            views.append(self._view(f"{first}, resident", self._recoded(first), "now"))
        if "each" in extras:
            view = self._view(f"{first}, each", self._recoded(first))
            assert view.consultant is not None
            assert view.scanner is not None
            retriever = EachHead(self.config.retrieval)
            view.consultant._retriever = view.scanner._retriever = retriever
            views.append(view)
        if "oracle" in extras:
            told = Told(self.memory, self._recoded("raw"), self.config.retrieval)
            groups = frozenset({"recall", "exists_yes"})
            views.append(View("raw, oracle", told, self._desk.scanner, "recall", groups))
        if "recipe" in extras:
            views.append(self._recipe())
        return views

    def _view(self, name: str, long_term: LongTermMemory, route: Route | None = None) -> View:
        retrieval = self.config.retrieval
        watched = Watched(self.memory, long_term, retrieval)
        return View(name, watched, Scanner(self.memory, long_term, retrieval), route)

    def scan_view(self, codec: str, **changes: Any) -> View:
        """A view whose scans run with other settings.

        Args:
            codec: As which segments come back.
            changes: Fields of :class:`~hermes_like.config.RetrievalConfig`.
        """
        long_term = self._recoded(codec)
        retrieval = self.config.retrieval.model_copy(update=changes)
        watched = Watched(self.memory, long_term, retrieval)
        return View(codec, watched, Scanner(self.memory, long_term, retrieval))

    def _recoded(self, codec: str) -> LongTermMemory:
        long_term = self._require_long_term()
        if codec == "raw":
            return long_term
        if codec not in self._twins:
            twin = self._twins[codec] = copy.copy(long_term)
            twin.chain = RecodedChain(long_term.chain, codec)  # type: ignore[assignment]
        return self._twins[codec]

    def _recipe(self) -> View:
        dims = self.model.dims
        heads = [(i, head) for i in range(dims.num_layers) for head in range(dims.num_kv_heads)]
        self._side = copy.copy(self._require_long_term())
        self._side.heads, self._side.groups = tuple(heads), 1
        self._side.index = SegmentIndex(len(heads), dims.head_dim)
        changed = {"pooling": "mean", "normalisation": "none", "vectors_per_frame": 1}
        retrieval = self.config.retrieval.model_copy(update=changed)
        watched = Watched(self.memory, self._side, retrieval)
        return View("raw, recipe", watched, self._desk.scanner, None, frozenset({"recall"}))

    def _on_closed(self, segment: Segment) -> None:
        if self._side is not None:
            self._side.index.add(self._side._head(segment, None))

    def ask_through(self, view: View, question: str, about: Sequence[int] = ()) -> Asked:
        """Ask once.

        Args:
            view: One of ``views``.
            question: In words.
            about: Frames that hold the answer, for the oracle.
        """
        if view.consultant is not None and view.scanner is not None:
            view.consultant.last = Consulted()
            self._desk._consultant, self._desk.scanner = view.consultant, view.scanner
        if isinstance(view.consultant, Told):
            view.consultant.frames = about
        answer = self.ask(question, route=view.route)
        consulted = view.consultant.last if view.consultant is not None else Consulted()
        frames = set(consulted.tiers)
        frames |= {
            frame
            for span in answer.evidence
            if answer.route == "scan"
            for frame in range(int(span.start_s), int(span.end_s))
        }
        return Asked(answer, bool(frames & set(about)), consulted.margin, sorted(frames))


@dataclass(frozen=True, slots=True)
class Asked:
    """An answer and what was looked at for it.

    Attributes:
        answer: The answer.
        has_found: Whether a frame that holds the answer was among what came back.
        margin: How far the best hit beat what is resident.
        frames: What came back.
    """

    answer: Answer
    has_found: bool
    margin: float = 0.0
    frames: list[int] = field(default_factory=list)

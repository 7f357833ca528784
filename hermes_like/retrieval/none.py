"""No retrieval: the past stays where it is."""

from __future__ import annotations

from hermes_like.index import SegmentIndex
from hermes_like.retrieval.base import Constraints, FloatArray, Found, ResidentFrames, Retriever


class NoRetriever(Retriever):
    """Finds nothing, so that what is resident answers alone; the control of every comparison."""

    def find(
        self,
        queries: FloatArray,
        index: SegmentIndex,
        constraints: Constraints,
        resident: ResidentFrames,
    ) -> Found:
        """Return no hits and no scores."""
        return Found()

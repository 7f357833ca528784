"""Finding the past again: from a question to frames that may hold its answer."""

from __future__ import annotations

from hermes_like.registry import Registry
from hermes_like.retrieval.base import Constraints, Found, Hit, ResidentFrames, Retriever

RETRIEVERS: Registry[type[Retriever]] = Registry(
    "retriever",
    {
        "none": "hermes_like.retrieval.none:NoRetriever",
        "similarity": "hermes_like.retrieval.similarity:SimilarityRetriever",
    },
)

__all__ = ["RETRIEVERS", "Constraints", "Found", "Hit", "ResidentFrames", "Retriever"]

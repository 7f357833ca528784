"""Datasets of questions about videos: read, run, and scored.

Reading and scoring load neither a model nor a decoder nor torch; only running does.
"""

from __future__ import annotations

from pathlib import Path

from hermes_like.errors import DatasetError
from hermes_like.evaluation.base import Dataset, DatasetReader, Edition, Finding, Question, Video
from hermes_like.registry import Registry

_READERS = "hermes_like.evaluation.readers"

DATASETS: Registry[type[DatasetReader]] = Registry(
    "dataset",
    {
        "activitynet-qa": f"{_READERS}.question_pairs:ActivityNetQA",
        "cgbench": f"{_READERS}.cgbench:CGBench",
        "easyvqa": f"{_READERS}.easyvqa:EasyVQA",
        "egoschema": f"{_READERS}.egoschema:EgoSchema",
        "longvideobench": f"{_READERS}.longvideobench:LongVideoBench",
        "mlvu": f"{_READERS}.mlvu:MLVU",
        "msvd-qa": f"{_READERS}.question_pairs:MSVDQA",
        "mvbench": f"{_READERS}.mvbench:MVBench",
        "odvbench": f"{_READERS}.odvbench:ODVBench",
        "ovobench": f"{_READERS}.ovobench:OVOBench",
        "ovobench-backward": f"{_READERS}.ovobench:Backward",
        "ovobench-forward": f"{_READERS}.ovobench:Forward",
        "ovobench-realtime": f"{_READERS}.ovobench:RealTime",
        "qaego4d": f"{_READERS}.qaego4d:QAEgo4D",
        "rekv": f"{_READERS}.rekv:ReKV",
        "rvs-ego": f"{_READERS}.rvs:RVSEgo",
        "rvs-movie": f"{_READERS}.rvs:RVSMovie",
        "sprites": f"{_READERS}.sprites:Sprites",
        "streamingbench": f"{_READERS}.streamingbench:StreamingBench",
        "streamingbench-contextual": f"{_READERS}.streamingbench:Contextual",
        "streamingbench-omni": f"{_READERS}.streamingbench:Omni",
        "streamingbench-proactive": f"{_READERS}.streamingbench:Proactive",
        "streamingbench-real": f"{_READERS}.streamingbench:Real",
        "streamingbench-sqa": f"{_READERS}.streamingbench:SQA",
        "svbench-dialogue": f"{_READERS}.svbench:Dialogue",
        "svbench-streaming": f"{_READERS}.svbench:Streaming",
        "videomme": f"{_READERS}.videomme:VideoMME",
    },
)

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetError",
    "DatasetReader",
    "Edition",
    "Finding",
    "Question",
    "Video",
    "load_dataset",
]


def load_dataset(
    name: str, folder: Path, *, videos: Path | None = None, edition: str | None = None
) -> Dataset:
    """Read a dataset from a download.

    Args:
        name: Registered in :data:`DATASETS`.
        folder: The download, or one annotation file.
        videos: Where the videos lie, if not in the folder.
        edition: Which edition to read, where several lie in the folder; None: the first known.

    Raises:
        ConfigError: Unknown name.
        DatasetError: No annotations of this dataset are there, or they cannot be read.
    """
    return DATASETS.get(name)(folder, videos=videos, edition=edition).load(name)

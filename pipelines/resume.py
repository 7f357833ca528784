"""How long it takes to open the memory of a long stream again.

    python -m pipelines.resume --hours 24

Watches a few minutes of sprites and writes their segments over and over, with their times moved on,
until the folder holds as many segments as the hours ask for; then opens it as an application would,
twice over. First as after a kill: the state of the device is older than the newest segments, and as
many of them are replayed as ever are (``store.checkpoint_segments``). Then as after a clean close.
The bytes are those of real segments and their pictures; only what they show repeats.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from hermes_like.config import HermesConfig
from hermes_like.long_term import STATE_NAME
from hermes_like.models import ModelAdapter, load_model
from hermes_like.presets import load_config
from hermes_like.records import Frame
from hermes_like.session import StreamSession
from hermes_like.sprites.render import render_frame
from hermes_like.sprites.stories import draw_story
from hermes_like.tiers.base import KeyframeRecord, SegmentRecord
from pipelines.reporting import bundled_model, print_header

SHOWN_FRAMES = 256
#: Where the session keeps its state in a memory folder.
STATE_FILE = f"{STATE_NAME}.blob"


def fill(session: StreamSession, num_segments: int) -> None:
    """Watch a little, then repeat what was stored up to a number of segments."""
    rng = np.random.default_rng(7)
    for index, sprites in enumerate(draw_story(rng, SHOWN_FRAMES).frames()):
        session.observe(Frame(render_frame(sprites, rng), index, float(index)))
    long_term = session.long_term
    assert long_term is not None
    long_term.flush()
    chain = long_term.chain
    ids = [head.segment_id for head in chain.heads()]
    shown = [(chain.get(segment_id)[0], chain.pictures(segment_id)) for segment_id in ids]
    for segment_id in range(len(shown), num_segments):
        record, pictures = shown[segment_id % len(shown)]
        later = moved(record, segment_id)
        by = later.head.first_frame - record.head.first_frame
        images = tuple(replace(image, frame=image.frame + by) for image in pictures.images)
        chain.put(later, KeyframeRecord(later.head, images))
        if segment_id % 500 == 0:
            long_term.flush()
    long_term.flush()


def moved(record: SegmentRecord, segment_id: int) -> SegmentRecord:
    """The same segment later in the stream."""
    head = record.head
    frames = head.num_frames
    offset_s = float(segment_id * frames) - head.frame_times_s[0]
    later = replace(
        head,
        segment_id=segment_id,
        first_frame=segment_id * frames,
        frame_times_s=tuple(time_s + offset_s for time_s in head.frame_times_s),
        end_s=head.end_s + offset_s,
    )
    return SegmentRecord(later, record.layers)


def config_for(hours: float) -> HermesConfig:
    """The preset of the bundled model, with room for all of it."""
    config = load_config("sprites")
    store = config.store.model_copy(
        update={"disk_bytes": int(2**30 + hours * 200 * 2**20), "min_free_bytes": 0}
    )
    return config.model_copy(update={"store": store})


@dataclass(frozen=True, slots=True)
class Opening:
    """One opening of a memory.

    Attributes:
        seconds: By the clock.
        cpu_seconds: Of this process.
        segments: Found.
    """

    seconds: float
    cpu_seconds: float
    segments: int


def open_once(model: ModelAdapter, folder: Path, config: HermesConfig) -> Opening:
    """Open and close a memory, and leave it as it was."""
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    session = StreamSession.open(model, folder, config)
    seconds = round(time.perf_counter() - started_s, 3)
    cpu_seconds = round(time.process_time() - started_cpu_s, 3)
    segments = len(session.long_term.timeline) if session.long_term else 0
    session.close(save=False)
    return Opening(seconds, cpu_seconds, segments)


def main(argv: list[str] | None = None) -> int:
    """Fill, close, open; the last line printed is JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hours", type=float, default=24.0, help="at one frame a second")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="keep the memory here; default: temporary")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    config, model = config_for(args.hours), load_model("sprites")
    num_segments = round(args.hours * 3600 / config.memory.segment_frames)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary) / "memory"
        if not folder.exists():
            with StreamSession(model, config, folder=folder) as session:
                fill(session, num_segments)
        killed = [open_once(model, folder, config) for _ in range(args.repeats)]
        state = (folder / STATE_FILE).read_bytes()
        StreamSession.open(model, folder, config).close()
        closed = [open_once(model, folder, config) for _ in range(args.repeats)]
        (folder / STATE_FILE).write_bytes(state)  # a folder that is kept can be measured again
        found = min(opening.segments for opening in (*killed, *closed))
        size = sum(p.stat().st_blocks * 512 for p in folder.rglob("*") if p.is_file())
    facts = print_header(
        "time to open a memory again", {"model": bundled_model(), "preset": "sprites"}
    )
    values = facts | {
        "hours": args.hours,
        "segments": found,
        "folder_bytes": size,
        "open_s": [opening.seconds for opening in killed],
        "open_cpu_s": [opening.cpu_seconds for opening in killed],
        "open_closed_s": [opening.seconds for opening in closed],
        "open_closed_cpu_s": [opening.cpu_seconds for opening in closed],
    }
    print(json.dumps(values))
    return 0 if found >= num_segments else 1


if __name__ == "__main__":
    sys.exit(main())

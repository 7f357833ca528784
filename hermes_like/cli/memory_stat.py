"""What ``hermes-like memory stat`` tells: gathered as plain values, then printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import typer

from hermes_like.cli.folder import Opened, find_fingerprint
from hermes_like.cli.output import clock, size
from hermes_like.records import MissingSpan
from hermes_like.tiers.base import SegmentHead

Span = tuple[float, float]


def describe(memory: Opened) -> dict[str, Any]:
    """Everything there is to tell of an open folder, as values that JSON can hold."""
    from hermes_like.tiers.disk import keyframe_cap

    store, caps = memory.store, memory.caps
    segments, pictures = store.segments.heads(), store.keyframes.heads()
    heads = {head.segment_id: head for head in [*pictures, *segments]}
    ordered = [heads[segment_id] for segment_id in sorted(heads)]
    num_segments, used_bytes = len(segments), _allocated(memory.folder)
    cap = None if caps is None else caps.disk_bytes
    pictures_cap = None if caps is None else keyframe_cap(caps)
    kv_cap = None if cap is None or pictures_cap is None else cap - pictures_cap
    return {
        "folder": str(memory.folder),
        "in_use": False,
        "stream": memory.state.get("name"),
        "watched": _watched(memory),
        **_model(memory),
        "num_segments": len(ordered),
        "num_frames": sum(head.num_frames for head in ordered),
        "num_approximate": sum(head.is_approximate for head in segments),
        "num_pictures_only": len(ordered) - num_segments,
        "stream_s": _stream_span(memory, ordered),
        "wall": _wall_span(memory, ordered),
        "tiers": {
            "disk": [used_bytes - store.keyframes.used_bytes, kv_cap, num_segments],
            "source": [store.keyframes.used_bytes, pictures_cap, len(pictures)],
        },
        "used_bytes": used_bytes,
        "cap_bytes": cap,
        "state": store.state,
        "segments_after_checkpoint": _after_checkpoint(memory, ordered),
        "missing": [[s.start_s, s.end_s, s.reason] for s in _missing(memory, ordered)],
        "is_encrypted": memory.is_encrypted,
        "notes": [*memory.problems, *store.notes],
    }


def describe_locked(folder: Path) -> dict[str, Any]:
    """What can be told of a folder that another process writes to, as of its last index write."""
    from hermes_like.tiers.layout import KV
    from hermes_like.tiers.manifest import LIVE, Manifest, ManifestDamaged

    try:
        rows = [row for row in Manifest.peek(folder) if row.state == LIVE]
    except ManifestDamaged:  # it was being written at this moment
        rows = []
    fingerprint = find_fingerprint(folder)
    return {
        "folder": str(folder),
        "in_use": True,
        "model": None if fingerprint is None else fingerprint.hard.get("model"),
        "codec": None if fingerprint is None else fingerprint.hard.get("codec"),
        "num_segments": sum(row.kind == KV for row in rows),
        "stream_s": [min(r.start_s for r in rows), max(r.end_s for r in rows)] if rows else None,
        "used_bytes": _allocated(folder),
    }


def print_stat(found: dict[str, Any]) -> None:
    """Print what :func:`describe` or :func:`describe_locked` gathered, a line each."""
    for name, text in _locked_rows(found) if found["in_use"] else _rows(found):
        typer.echo(f"{name:<16} {text}")


def _allocated(folder: Path) -> int:
    """Blocks of all files, as the file system counts them; files may go while they are counted."""
    from hermes_like.tiers.ledger import allocated

    return sum(allocated(path) for path in folder.iterdir())


def _rows(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "memory", f"{found['folder']}{', encrypted' if found['is_encrypted'] else ''}"
    if found["watched"] is not None:
        how_far = "to its end" if found["watched"]["is_complete"] else "in part"
        yield "video", f"{found['watched']['reference']}, watched {how_far}"
    elif found["stream"] is not None:
        yield "stream", found["stream"]
    yield "model", f"{found['model']}, codec {found['codec']}, fingerprint {found['fingerprint']}"
    yield "segments", _segments(found)
    if found["stream_s"] is not None:
        yield "stream time", "-".join(map(clock, found["stream_s"]))
    if found["wall"] is not None:
        yield "wall time", " to ".join(moment.replace("T", " ") for moment in found["wall"])
    for name, label in (("disk", "keys and values"), ("source", "pictures")):
        used, cap, count = found["tiers"][name]
        yield label, f"{_of(used, cap)} for {count} segments"
    yield "whole folder", _of(found["used_bytes"], found["cap_bytes"])
    yield "state", _state(found)
    for start_s, end_s, reason in found["missing"]:
        yield "missing", f"{clock(start_s)}-{clock(end_s)} ({reason})"
    for note in found["notes"]:
        yield "note", note


def _locked_rows(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "memory", f"{found['folder']}, in use by another process"
    if found["model"] is not None:
        yield "model", f"{found['model']}, codec {found['codec']}"
    span = found["stream_s"]
    when = "" if span is None else f", stream time {'-'.join(map(clock, span))}"
    yield "segments", f"{found['num_segments']} in the index so far{when}"
    yield "whole folder", size(found["used_bytes"])


def _segments(found: dict[str, Any]) -> str:
    text = f"{found['num_segments']} with {found['num_frames']} frames"
    if found["num_pictures_only"]:
        text += f", {found['num_pictures_only']} as pictures only"
    if found["num_approximate"]:
        text += f", {found['num_approximate']} encoded again from pictures"
    return text


def _state(found: dict[str, Any]) -> str:
    later = found["segments_after_checkpoint"]
    if later is None:
        return f"{found['state']}, no checkpoint: the device is rebuilt when it is opened"
    if later:
        return f"{found['state']}, {later} segments since the last checkpoint are replayed"
    return f"{found['state']}, closed with everything"


def _of(used: int, cap: int | None) -> str:
    return size(used) if cap is None else f"{size(used)} of {size(cap)}"


def _watched(memory: Opened) -> dict[str, Any] | None:
    if memory.note is None:
        return None
    watched = memory.note.watched
    return {
        "reference": watched.reference,
        "is_complete": watched.is_complete,
        "num_frames": watched.num_frames or memory.state.get("num_frames", 0),
        "sampling": dict(watched.sampling),
    }


def _model(memory: Opened) -> dict[str, Any]:
    fingerprint = memory.fingerprint
    if fingerprint is None:
        return {"model": None, "codec": None, "fingerprint": None}
    return {
        "model": fingerprint.hard.get("model"),
        "codec": fingerprint.hard.get("codec"),
        "fingerprint": fingerprint.digest.hex()[:16],
    }


def _stream_span(memory: Opened, heads: Sequence[SegmentHead]) -> list[float] | None:
    """From the first frame ever seen to the newest one."""
    starts = [head.start_s for head in heads]
    ends = [head.end_s for head in heads]
    if memory.state.get("num_frames"):
        starts.append(memory.state["first_s"])
        ends.append(memory.state["last_s"])
    return [min(starts), max(ends)] if starts else None


def _wall_span(memory: Opened, heads: Sequence[SegmentHead]) -> list[str] | None:
    span, zero = _stream_span(memory, heads), memory.state.get("wall_at_zero")
    if span is None:
        return None
    if zero is not None:
        start = datetime.fromisoformat(zero)
        moments = [start + timedelta(seconds=second) for second in span]
    else:
        walls = [wall for head in heads for wall in head.frame_walls_s if wall is not None]
        if not walls:
            return None
        moments = [datetime.fromtimestamp(wall, UTC) for wall in (min(walls), max(walls))]
    return [moment.isoformat(timespec="seconds") for moment in moments]


def _after_checkpoint(memory: Opened, heads: Sequence[SegmentHead]) -> int | None:
    """Segments that the last checkpoint does not know; None without one."""
    if not memory.state:
        return None
    newest = int(memory.state["num_segments"])
    return sum(head.segment_id >= newest for head in heads)


def _missing(memory: Opened, heads: Sequence[SegmentHead]) -> list[MissingSpan]:
    """What lies between the first frame and the newest segment and is not there."""
    from hermes_like.retrieval.coverage import NEVER_SEEN, coverage
    from hermes_like.timeline import Timeline

    span = _stream_span(memory, heads)
    if span is None or not heads:
        return []
    timeline = Timeline()
    for head in heads:
        timeline.add(head)
    erased = [MissingSpan(start, end, "erased") for start, end in memory.state.get("erased", [])]
    blind = [MissingSpan(start, end, why) for start, end, why in memory.state.get("blind", [])]
    lost = [
        MissingSpan(loss.start_s, loss.end_s, loss.reason)
        for loss in memory.store.misses.lost
        if loss.content == "kv" and loss.start_s is not None and loss.end_s is not None
    ]
    newest = timeline.newest
    end_s = max([*(s.end_s for s in erased), 0.0 if newest is None else newest.end_s])
    found = coverage(timeline.footage(), [*erased, *blind, *lost], span[0], end_s, now_s=end_s)
    return [
        MissingSpan(part.start_s, part.end_s, "not stored") if part.reason == NEVER_SEEN else part
        for part in found.missing
    ]

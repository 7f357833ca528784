"""``hermes-like memory export``: segments and pictures of a memory as plain files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from hermes_like import __version__
from hermes_like.cli.folder import Opened
from hermes_like.errors import CodecError, ConfigError, SegmentUnavailableError, StorageError
from hermes_like.tiers.base import SegmentHead, SegmentRecord

EXPORT_VERSION = 1
MANIFEST = "manifest.json"
_DECODED = (
    "layers.L.raw_keys and layers.L.values, [kv_heads, tokens, head_dim], decoded, keys un-rotated"
)
_ENCODED = "layers.L.block, [bytes] uint8, as the codec wrote it"


@dataclass(slots=True)
class Exported:
    """What was written.

    Attributes:
        num_segments: Safetensors files.
        num_pictures: Image files.
        num_bytes: Of all files but the manifest.
        problems: What could not be read, in words.
    """

    num_segments: int = 0
    num_pictures: int = 0
    num_bytes: int = 0
    problems: list[str] = field(default_factory=list)


def export_memory(memory: Opened, out: Path, *, is_encoded: bool) -> Exported:
    """Write every segment and picture that can be read, and a manifest that names them.

    Args:
        memory: An open folder.
        out: New or empty folder; made with mode 0700, files with 0600.
        is_encoded: Write blocks as stored; else decode them.

    Raises:
        ConfigError: ``out`` is not empty.
        StorageError: A file cannot be written.
    """
    done = Exported()
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise ConfigError(f"{out}: expected a new or an empty folder")
        entries = list(_export_all(memory, out, done, is_encoded=is_encoded))
        manifest = {
            "version": EXPORT_VERSION,
            "written_by": f"hermes_like {__version__}",
            "stream": memory.state.get("name"),
            "tensors": _ENCODED if is_encoded else _DECODED,
            "is_encoded": is_encoded,
            "fingerprint": _fingerprint(memory),
            "erased": memory.state.get("erased", []),
            "segments": entries,
            "problems": done.problems,
        }
        _write(out / MANIFEST, json.dumps(manifest, indent=1).encode())
    except OSError as error:
        raise StorageError(f"{out}: cannot be written: {error}") from error
    return done


def _export_all(
    memory: Opened, out: Path, done: Exported, *, is_encoded: bool
) -> Iterator[dict[str, Any]]:
    store = memory.store
    heads = {head.segment_id: head for head in [*store.keyframes.heads(), *store.segments.heads()]}
    for segment_id in tqdm(sorted(heads), desc="exporting", disable=None, leave=False):
        entry = _entry(heads[segment_id])
        if segment_id in store.segments:
            entry["file"] = _export_segment(memory, segment_id, out, done, is_encoded=is_encoded)
        if segment_id in store.keyframes:
            entry["pictures"] = _export_pictures(memory, segment_id, out, done)
        yield entry


def _entry(head: SegmentHead) -> dict[str, Any]:
    return {
        "segment_id": head.segment_id,
        "first_frame": head.first_frame,
        "frame_times_s": head.frame_times_s,
        "end_s": head.end_s,
        "frame_walls_s": head.frame_walls_s,
        "tokens_per_frame": head.tokens_per_frame,
        "num_tokens": len(head.token_cells),
        "is_approximate": head.is_approximate,
        "content_key": head.content_key.hex(),
        "file": None,
        "pictures": [],
    }


def _export_segment(
    memory: Opened, segment_id: int, out: Path, done: Exported, *, is_encoded: bool
) -> str | None:
    name = f"segment-{segment_id:08d}.safetensors"
    try:
        record = memory.store.segments.get(segment_id)
        data = _encoded(record) if is_encoded else _decoded(record)
    except (SegmentUnavailableError, CodecError) as error:
        done.problems.append(str(error))
        return None
    _write(out / name, data)
    done.num_segments += 1
    done.num_bytes += len(data)
    return name


def _encoded(record: SegmentRecord) -> bytes:
    import numpy as np
    from safetensors.numpy import save

    head = record.head
    tensors: dict[str, np.ndarray[Any, Any]] = {
        f"layers.{index}.block": np.frombuffer(block, np.uint8)
        for index, block in enumerate(record.layers)
    }
    tensors |= {"token_cells": head.token_cells.copy(), "vectors": head.vectors.copy()}
    data: bytes = save(tensors)
    return data


def _decoded(record: SegmentRecord) -> bytes:
    import torch
    from safetensors.torch import save

    from hermes_like.codec import decode_block

    head, tensors = record.head, {}
    for index, block in enumerate(record.layers):
        decoded = decode_block(block)
        tensors[f"layers.{index}.raw_keys"] = decoded.raw_keys.contiguous()
        tensors[f"layers.{index}.values"] = decoded.values.contiguous()
    tensors["token_cells"] = torch.from_numpy(head.token_cells.copy())
    tensors["vectors"] = torch.from_numpy(head.vectors.copy())
    data: bytes = save(tensors)
    return data


def _export_pictures(
    memory: Opened, segment_id: int, out: Path, done: Exported
) -> list[dict[str, Any]]:
    try:
        record = memory.store.keyframes.get(segment_id)
    except SegmentUnavailableError as error:
        done.problems.append(f"pictures of {error}")
        return []
    entries = []
    for image in record.images:
        ending = "jpg" if bytes(image.data[:2]) == b"\xff\xd8" else "webp"
        name = f"frame-{image.frame:08d}.{ending}"
        _write(out / name, image.data)
        offset = image.frame - record.head.first_frame
        entries.append(
            {"file": name, "frame": image.frame, "pts_s": record.head.frame_times_s[offset]}
        )
        done.num_pictures += 1
        done.num_bytes += len(image.data)
    return entries


def _fingerprint(memory: Opened) -> dict[str, Any] | None:
    if memory.fingerprint is None:
        return None
    values: dict[str, Any] = json.loads(memory.fingerprint.to_json())
    return values


def _write(path: Path, data: bytes | memoryview) -> None:
    """A new file that nobody else can read."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)

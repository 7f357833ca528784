"""Encryption at rest: keys, and a folder in which nothing can be read."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest

from hermes_like.errors import ConfigError, StorageError
from hermes_like.tiers.cipher import KEY_VARIABLE, Cipher, load_key
from tests.tiers.disk_tools import contains, open_small
from tests.tiers.segments import make_pictures, make_segment, same

KEY = bytes(range(32))
OTHER = bytes(range(1, 33))


def test_sections_are_bound_to_key_and_place() -> None:
    cipher = Cipher(KEY)
    sealed = cipher.seal(b"secret", b"here")
    assert cipher.open(sealed, b"here") == b"secret"
    assert cipher.seal(b"secret", b"here") != sealed
    with pytest.raises(ValueError, match="decryption"):
        cipher.open(sealed, b"there")
    with pytest.raises(ValueError, match="decryption"):
        Cipher(OTHER).open(sealed, b"here")
    with pytest.raises(ValueError, match="decryption"):
        cipher.open(sealed[:-1] + bytes([sealed[-1] ^ 1]), b"here")


def test_keys_come_from_a_file_or_the_environment(tmp_path: Path) -> None:
    text = base64.b64encode(KEY).decode()
    path = tmp_path / "key"
    path.write_text(text + "\n")
    assert load_key(path, {}) == KEY
    assert load_key(None, {KEY_VARIABLE: text}) == KEY
    assert load_key(None, {}) is None
    for wrong in ("not base64!", base64.b64encode(KEY[:16]).decode()):
        with pytest.raises(ConfigError, match=KEY_VARIABLE):
            load_key(None, {KEY_VARIABLE: wrong})
    with pytest.raises(ConfigError, match="missing"):
        load_key(tmp_path / "missing")


def test_nothing_can_be_read_in_an_encrypted_folder(tmp_path: Path) -> None:
    segment, pictures = make_segment(3), make_pictures(3)
    with open_small(tmp_path, key=KEY) as store:
        store.segments.put(segment)
        store.keyframes.put(pictures)
        store.put_blob("state", b"plain checkpoint" * 10)
        store.flush()
        secrets = [
            bytes(segment.layers[1][:64]),
            bytes(pictures.images[0].data[:64]),
            np.asarray(segment.head.vectors).tobytes()[:64],
            segment.head.content_key,
            b"plain checkpoint",
        ]
        assert not [secret for secret in secrets if contains(tmp_path, secret)]
    with open_small(tmp_path, key=KEY) as store:
        assert same(store.segments.get(3), segment)
        assert same(store.keyframes.get(3), pictures)
        assert store.get_blob("state") == b"plain checkpoint" * 10
    (tmp_path / "manifest.sqlite").unlink()
    with open_small(tmp_path, key=KEY) as store:
        assert same(store.segments.get(3), segment)


@pytest.mark.parametrize(
    ("written", "given", "message"),
    [(KEY, OTHER, "wrong key"), (KEY, None, "no key was given"), (None, KEY, "not encrypted")],
)
def test_a_wrong_key_is_refused_at_the_door(
    written: bytes | None, given: bytes | None, message: str, tmp_path: Path
) -> None:
    with open_small(tmp_path, key=written) as store:
        store.segments.put(make_segment(1))
    with pytest.raises(StorageError, match=message):
        open_small(tmp_path, key=given)
    with open_small(tmp_path, key=written) as store:
        assert same(store.segments.get(1), make_segment(1))


def test_sealed_sections_cannot_change_places(tmp_path: Path) -> None:
    """Two layers of equal length, swapped on disk with their checksums, do not decrypt."""
    from hermes_like.tiers import layout

    with open_small(tmp_path, key=KEY) as store:
        store.segments.put(make_segment(1))
    (path,) = tmp_path.glob("kv-*.vol")
    data = bytearray(path.read_bytes())
    start = data.index(layout.RECORD_MAGIC)
    header = layout.unpack_record(data[start : start + layout.BLOCK_BYTES])
    first, second = header.sections[1], header.sections[2]
    size = min(first.length, second.length)
    sections = list(header.sections)
    sections[1] = layout.Section(1 + 1, 0, second.offset, second.length, second.digest)
    sections[2] = layout.Section(1 + 1, 1, first.offset, first.length, first.digest)
    changed = layout.RecordHeader(
        header.kind, header.record_bytes, header.sequence, header.segment_id, header.start_s,
        header.end_s, header.digest, header.key_id, tuple(sections),
    )  # fmt: skip
    packed = layout.pack_record(changed)
    data[start : start + len(packed)] = packed
    path.write_bytes(bytes(data))
    assert size
    with open_small(tmp_path, key=KEY) as store, pytest.raises(StorageError, match="checksum"):
        store.segments.get(1)

"""Encryption at rest: AES-GCM from a library, one call per section, bound to its place.

Only contents are hidden. Segment ids, sizes, times and the fingerprint stay readable, because the
folder must be listed, checked and repaired without the key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hermes_like.errors import ConfigError

KEY_BYTES = 32
KEY_ID_BYTES = 16
#: Stands where a key id would, in what is not encrypted.
NO_KEY = bytes(KEY_ID_BYTES)
NONCE_BYTES = 12
#: What encryption adds to a section: nonce and tag.
OVERHEAD_BYTES = NONCE_BYTES + 16
KEY_VARIABLE = "HERMES_LIKE_MEMORY_KEY"

Buffer = bytes | bytearray | memoryview


class Cipher:
    """Seals and opens sections under one key.

    Args:
        key: 32 random bytes.

    Raises:
        ConfigError: The key has another length.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ConfigError(f"memory key: expected {KEY_BYTES} bytes, got {len(key)}")
        self.key_id = _derive(key, b"key id")[:KEY_ID_BYTES]
        self._check_key = _derive(key, b"check")
        self._aead = AESGCM(_derive(key, b"sections"))

    def check_value(self, context: bytes) -> bytes:
        """16 bytes that only this key gives for ``context``; stored to tell a wrong key at open."""
        return hmac.digest(self._check_key, context, "sha256")[:16]

    def seal(self, data: Buffer, place: bytes) -> bytes:
        """Encrypt; ``place`` must be given again to :meth:`open`."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, data, self.key_id + place)

    def open(self, data: Buffer, place: bytes) -> bytes:
        """Decrypt.

        Raises:
            ValueError: Another key, another place, or altered bytes.
        """
        view = memoryview(data)
        try:
            return self._aead.decrypt(view[:NONCE_BYTES], view[NONCE_BYTES:], self.key_id + place)
        except InvalidTag as error:
            raise ValueError("decryption failed: other key, other place, or altered") from error


def load_key(
    path: Path | None = None, environment: Mapping[str, str] | None = None
) -> bytes | None:
    """The memory key: from a file, else from ``HERMES_LIKE_MEMORY_KEY``, else None.

    Both hold base64 of 32 bytes (``openssl rand -base64 32``).

    Raises:
        ConfigError: The file cannot be read, or the text is not base64 of 32 bytes.
    """
    environment = os.environ if environment is None else environment
    if path is not None:
        try:
            text, origin = path.read_text(encoding="ascii"), str(path)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"memory key: cannot read {path}: {error}") from error
    elif environment.get(KEY_VARIABLE):
        text, origin = environment[KEY_VARIABLE], KEY_VARIABLE
    else:
        return None
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"memory key: {origin} is not base64") from error
    if len(key) != KEY_BYTES:
        raise ConfigError(f"memory key: {origin} holds {len(key)} bytes, expected {KEY_BYTES}")
    return key


def _derive(key: bytes, purpose: bytes) -> bytes:
    """An independent key for one purpose."""
    return hmac.digest(key, b"hermes-like memory: " + purpose, hashlib.sha256)

"""Every hard field that differs is named, in the class and at the door of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_like.errors import ConfigError, FingerprintError
from hermes_like.tiers.fingerprint import HARD_FIELDS, SOFT_FIELDS, Fingerprint
from tests.tiers.disk_tools import open_small
from tests.tiers.segments import make_segment, same

FULL = Fingerprint.of(
    **{name: f"value of {name}" for name in (*HARD_FIELDS, *SOFT_FIELDS)}
)  # fmt: skip


def changed(name: str) -> Fingerprint:
    return Fingerprint.of(**{**FULL.hard, **FULL.soft, name: "another value"})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fingerprint") / "memory"
    with open_small(folder, fingerprint=FULL) as store:
        store.segments.put(make_segment(0))
    return folder


@pytest.mark.parametrize("name", HARD_FIELDS)
def test_a_hard_field_is_refused_by_name(name: str, written: Path) -> None:
    before = {path.name: path.read_bytes() for path in written.iterdir()}
    with pytest.raises(
        FingerprintError, match=rf"\b{name} \"value of {name}\" -> \"another value\""
    ):
        open_small(written, fingerprint=changed(name))
    assert {path.name: path.read_bytes() for path in written.iterdir()} == before
    assert changed(name).digest != FULL.digest


@pytest.mark.parametrize("name", SOFT_FIELDS)
def test_a_soft_field_is_a_note(name: str, written: Path) -> None:
    with open_small(written, fingerprint=changed(name), read_only=True) as store:
        (note,) = store.notes
        assert name in note
        assert "another value" in note
        assert same(store.segments.get(0), make_segment(0))
    assert changed(name).digest == FULL.digest


def test_all_differences_are_named_at_once() -> None:
    now = Fingerprint.of(model="b", rope_theta=5e6, head_dim=64)
    with pytest.raises(FingerprintError) as caught:
        now.require_equal(Fingerprint.of(model="a", rope_theta=1e6, codec="int8"))
    text = str(caught.value)
    for part in ("rope_theta 1000000 -> 5000000", 'model "a" -> "b"', "head_dim", "codec"):
        assert part in text


def test_json_gives_it_back() -> None:
    one = Fingerprint.of(rope_theta=1e6, window_tokens=(1, None), adapters={"b": 2.5, "a": True})
    other = Fingerprint.from_json(one.to_json())
    assert other == one
    assert other.digest == one.digest
    assert one.digest == Fingerprint.of(
        adapters={"a": True, "b": 2.5}, window_tokens=[1, None], rope_theta=1_000_000
    ).digest  # fmt: skip
    with pytest.raises(FingerprintError):
        Fingerprint.from_json(b"{}")


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match="JSON"):
        Fingerprint.of(model=b"bytes")
    with pytest.raises(ConfigError, match="colour"):
        Fingerprint.of(colour="red")

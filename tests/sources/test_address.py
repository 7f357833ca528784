"""Credentials are used and never shown, whatever characters they hold."""

from __future__ import annotations

import pytest

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceOpenError
from hermes_like.sources import open_source
from hermes_like.sources.address import parse_address, redacted

AWKWARD = ["p@ss", "a:b:c", "100%", "with space", "schlüssel", "%41", "+&=;", "[brackets]"]


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("rtsp://10.0.0.7:554/live", "rtsp://10.0.0.7:554/live"),
        ("rtsp://admin:secret@10.0.0.7/live?ch=1", "rtsp://10.0.0.7/live?ch=1"),
        ("rtsp://ad@min:se@cret@10.0.0.7/live", "rtsp://10.0.0.7/live"),
        ("http://cam/v?user=admin&pwd=hush&res=hd", "http://cam/v?user=***&pwd=***&res=hd"),
        ("http://cam/v?access_token=abc&Password=x", "http://cam/v?access_token=***&Password=***"),
        ("http://cam/v?monkey=1", "http://cam/v?monkey=1"),
        ("rtsp://cam/user=admin_password=hush_channel=1", "rtsp://cam/user=***"),
        ("rtsp://admin:ha/lf@10.0.0.7/live", "rtsp://***@10.0.0.7/live"),
        ("rtsp://admin:12/34@10.0.0.7/live", "rtsp://***@10.0.0.7/live"),
        ("rtsp://admin:ha#lf@10.0.0.7/live", "rtsp://***@10.0.0.7/live"),
        ("rtsp://u:p@[fe80::1]:554/live", "rtsp://[fe80::1]:554/live"),
        ("/videos/a@b.mp4", "/videos/a@b.mp4"),
    ],
)
def test_names_hold_no_credentials(address: str, name: str) -> None:
    assert redacted(address) == name


@pytest.mark.parametrize("password", AWKWARD)
def test_passwords_come_through_from_the_environment(password: str) -> None:
    address = parse_address("rtsp://${WHO}:${HOW}@cam/live", {"WHO": "ad/min", "HOW": password})
    assert address.name == "rtsp://cam/live"
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(address.url)
    assert unquote(parts.username or "") == "ad/min"
    assert unquote(parts.password or "") == password
    assert parts.hostname == "cam"
    assert address.url.isascii()
    assert " " not in address.url


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("p@ss", "p@ss"),
        ("a:b", "a:b"),
        ("100%", "100%"),
        ("100%25", "100%"),
        ("with space", "with space"),
        ("schlüssel", "schlüssel"),
        ("a%2Fb%3Fc%23d", "a/b?c#d"),
    ],
)
def test_passwords_come_through_as_written(written: str, meant: str) -> None:
    from urllib.parse import unquote, urlsplit

    address = parse_address(f"rtsp://admin:{written}@cam:554/live")
    assert unquote(urlsplit(address.url).password or "") == meant
    assert address.name == "rtsp://cam:554/live"


@pytest.mark.parametrize("char", ["/", "?", "#"])
@pytest.mark.parametrize("half", ["geheim", "12"])
def test_what_cannot_be_told_apart_is_refused_naming_the_character(char: str, half: str) -> None:
    with pytest.raises(SourceOpenError) as caught:
        parse_address(f"rtsp://admin:{half}{char}wort@cam/live")
    assert repr(char) in str(caught.value)
    assert f"%{ord(char):02X}" in str(caught.value)
    assert half not in str(caught.value)
    assert "wort" not in str(caught.value)


def test_control_characters_are_refused() -> None:
    with pytest.raises(SourceOpenError, match=r"'\\n'"):
        parse_address("rtsp://admin:a\nb@cam/live")


def test_a_missing_variable_is_named() -> None:
    with pytest.raises(SourceOpenError, match="CAMERA_HOW, which is not set"):
        parse_address("rtsp://admin:${CAMERA_HOW}@cam/live", {})


def test_a_bad_port_is_refused_without_showing_it() -> None:
    with pytest.raises(SourceOpenError, match="expected a port") as caught:
        parse_address("rtsp://cam:geheim/live")
    assert "geheim" not in str(caught.value)


def test_messages_are_scrubbed_in_every_spelling() -> None:
    address = parse_address("rtsp://admin:schl%C3%BCssel@cam/live?token=abc123")
    text = f"cannot open {address.url}: admin schlüssel schl%C3%BCssel abc123"
    scrubbed = address.scrubbed(text)
    for secret in ("admin", "schlüssel", "%C3%BC", "abc123"):
        assert secret not in scrubbed
    assert repr(address) == "Address('rtsp://cam/live?token=***')"


def test_an_unknown_kind_of_address_shows_no_credentials() -> None:
    with pytest.raises(SourceOpenError, match=r"rtpm://cam") as caught:
        open_source("rtpm://admin:geheim@cam/live", SourceConfig())
    assert "geheim" not in str(caught.value)


def test_listening_is_for_tcp_and_rtsp() -> None:
    with pytest.raises(SourceOpenError, match="expected listen with tcp or rtsp"):
        open_source("http://127.0.0.1:9000/?listen=1")

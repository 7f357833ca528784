"""Network streams and webcams: from an address to what the reading process is asked for.

Knows what FFmpeg must be told for each scheme; opens nothing itself.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceOpenError
from hermes_like.sources.address import Address, parse_address
from hermes_like.sources.live.child import ChildConnection
from hermes_like.sources.live.source import LiveSource

_STREAM_READER = "hermes_like.sources.live.pyav_pictures:read_stream"
_WEBCAM_READER = "hermes_like.sources.live.webcam:read_webcam"

#: What a stream may make FFmpeg open beyond itself; never a file.
_PROTOCOLS = {
    "rtsp": "rtsp,rtp,srtp,rtcp,udp,tcp,tls,http,https",
    "http": "http,https,httpproxy,tls,tcp,crypto,data",
    "tcp": "tcp",
    "udp": "udp",
}

_OPTIONS = {
    # Over UDP a lost packet is a smeared picture; it is for cameras that know nothing else.
    "rtsp": {"rtsp_flags": "prefer_tcp"},
    # The newest part of a playlist; what lies before it is the past.
    "http": {"live_start_index": "-1"},
    "tcp": {},
    "udp": {"overrun_nonfatal": "1"},
}

#: How long FFmpeg looks at a stream to find out what is in it, in microseconds.
_ANALYZE_US = "1000000"

#: FFmpeg has no "for ever" that works here. When this is over, it is begun anew.
_LISTEN_S = "86400"

_LISTEN = re.compile(r"([?&])listen(?:=1)?(?=&|$)")


def open_network(reference: str, config: SourceConfig) -> LiveSource:
    """Open ``rtsp[s]://``, ``http[s]://`` (multipart JPEG, HLS), ``tcp://``, ``udp://`` (MPEG-TS).

    With ``?listen=1``, ``tcp`` and ``rtsp`` wait for a sender to come, as ``udp`` always does.

    Raises:
        SourceOpenError: The address cannot be; no connection is tried yet.
    """
    address = parse_address(reference)
    is_listening, request = stream_request(address)
    open_s = None if is_listening else config.connect_timeout_s
    return LiveSource(
        address.name,
        config,
        connect=lambda: ChildConnection(request, open_s, config.silence_s, address.scrubbed),
    )


def stream_request(address: Address) -> tuple[bool, dict[str, object]]:
    """Whether a sender is waited for, and what the reading process is asked for."""
    family = address.scheme.removesuffix("s")
    url = address.url
    options = {
        "protocol_whitelist": _PROTOCOLS[family],
        "analyzeduration": _ANALYZE_US,
        **_OPTIONS[family],
    }
    query = parse_qsl(url.partition("?")[2], keep_blank_values=True)
    is_listening = any(key == "listen" and value in {"", "1"} for key, value in query)
    if is_listening and family in {"http", "udp"}:
        raise SourceOpenError(
            f"{address.name}: expected listen with tcp or rtsp, got it with {address.scheme}"
        )
    if is_listening and family == "rtsp":
        options |= {"rtsp_flags": "listen", "listen_timeout": _LISTEN_S}
        url = _LISTEN.sub(r"\1", url).replace("?&", "?").rstrip("?&")
    request: dict[str, object] = {
        "reader": _STREAM_READER,
        "name": address.name,
        "url": url,
        "options": options,
    }
    return is_listening or family == "udp", request


def open_webcam(reference: str, config: SourceConfig) -> LiveSource:
    """Open ``webcam:0``.

    Raises:
        SourceOpenError: The part behind the colon is no number.
    """
    number = reference.partition(":")[2]
    if not (number.isascii() and number.isdigit()):
        raise SourceOpenError(f"{reference}: expected the number of a camera, such as webcam:0")
    request = {"reader": _WEBCAM_READER, "name": reference, "device": int(number)}
    return LiveSource(
        reference,
        config,
        connect=lambda: ChildConnection(request, config.connect_timeout_s, config.silence_s),
    )

"""Where segments lie off the device: RAM, disk, and pictures from which they can be made again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hermes_like.config import StoreConfig
from hermes_like.errors import ConfigError
from hermes_like.tiers.at_cap import DiskTraits
from hermes_like.tiers.base import (
    Keyframe,
    KeyframeRecord,
    KeyframeStore,
    SegmentHead,
    SegmentRecord,
    Tier,
)
from hermes_like.tiers.chain import TierChain
from hermes_like.tiers.chain_stats import ChainStats, TierStats
from hermes_like.tiers.disk import DiskStore, volume_bytes
from hermes_like.tiers.fingerprint import Fingerprint
from hermes_like.tiers.host import HostKeyframes, HostTier
from hermes_like.tiers.thinner import Thinning

__all__ = [
    "ChainStats",
    "DiskStore",
    "DiskTraits",
    "Fingerprint",
    "HostKeyframes",
    "HostTier",
    "Keyframe",
    "KeyframeRecord",
    "KeyframeStore",
    "SegmentHead",
    "SegmentRecord",
    "Thinning",
    "Tier",
    "TierChain",
    "TierStats",
    "open_tiers",
]

#: Least ``store.host_bytes``, whatever the model.
MIN_HOST_BYTES = 2**20
#: What the header of a volume and of a record may take.
VOLUME_SLACK_BYTES = 32 * 2**10


def open_tiers(
    config: StoreConfig,
    *,
    store: DiskStore | None = None,
    segment_bytes: int = 0,
    on_evicted: Callable[[Sequence[int]], None] | None = None,
    thinning: Thinning | None = None,
) -> TierChain:
    """Build the tiers of one stream as configured.

    Without an open folder there is no disk: pictures lie in RAM then, in at most a quarter of
    ``host_bytes`` and at most ``keyframe_bytes``, which segments do not get.

    Args:
        config: Caps and what happens at them.
        store: The open memory folder; the chain closes it.
        segment_bytes: The largest segment that will be put, if it is known.
        on_evicted: See :class:`TierChain`.
        thinning: See :class:`TierChain`.

    Raises:
        ConfigError: ``host_bytes`` cannot hold a segment that is written while the next one comes,
            or ``disk_bytes`` is too small for one; the message says what is enough.
    """
    has_pictures = config.keyframes_per_segment > 0 and config.keyframe_bytes > 0
    if store is not None:
        _require_host(config, segment_bytes, 0)
        return _with_disk(config, store, has_pictures, segment_bytes, on_evicted, thinning)
    pictures_bytes = min(config.keyframe_bytes, config.host_bytes // 4) if has_pictures else 0
    _require_host(config, segment_bytes, pictures_bytes)
    return TierChain(
        HostTier(config.host_bytes - pictures_bytes),
        None,
        HostKeyframes(pictures_bytes) if has_pictures else None,
        at_disk_cap=config.at_disk_cap,
        on_evicted=on_evicted,
    )


def _with_disk(
    config: StoreConfig,
    store: DiskStore,
    has_pictures: bool,
    segment_bytes: int,
    on_evicted: Callable[[Sequence[int]], None] | None,
    thinning: Thinning | None,
) -> TierChain:
    caps = store.segments.cap_bytes, store.keyframes.cap_bytes
    most_segment_bytes, most_pictures_bytes = (
        volume_bytes(cap) - VOLUME_SLACK_BYTES for cap in caps
    )
    if segment_bytes > most_segment_bytes:
        least = 16 * (segment_bytes + VOLUME_SLACK_BYTES) + caps[1]
        raise ConfigError(
            f"store.disk_bytes: expected at least {least} for segments of {segment_bytes} bytes "
            f"beside pictures of {caps[1]}, got {config.disk_bytes}; a volume holds at most "
            f"{most_segment_bytes}"
        )
    return TierChain(
        HostTier(config.host_bytes),
        store.segments,
        store.keyframes if has_pictures else None,
        at_disk_cap=config.at_disk_cap,
        on_evicted=on_evicted,
        traits=DiskTraits(
            most_segment_bytes=most_segment_bytes,
            most_pictures_bytes=most_pictures_bytes,
            state=lambda: store.state,
            staging_bytes=lambda: store.staging_bytes,
        ),
        on_close=store.close,
        thinning=thinning,
    )


def _require_host(config: StoreConfig, segment_bytes: int, pictures_bytes: int) -> None:
    least = max(MIN_HOST_BYTES, 2 * segment_bytes) + pictures_bytes
    if config.host_bytes < least:
        raise ConfigError(
            f"store.host_bytes: expected at least {least} (two segments of {segment_bytes} bytes, "
            f"pictures {pictures_bytes}), got {config.host_bytes}"
        )

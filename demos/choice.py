"""What a visitor may choose, and the errors that are shown to them."""

from __future__ import annotations

from dataclasses import dataclass

from hermes_like.config import HermesConfig
from hermes_like.errors import HermesError

MIB = 2**20


class DemoError(HermesError):
    """What a visitor asked for cannot be done; the message is shown to them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a visitor chose for the next memory.

    Attributes:
        model: Name of the model.
        device_tokens: Slots per layer on the device.
        host_mib: RAM, in units of 2^20 bytes.
        disk_mib: Disk, likewise.
        as_it_plays: Whether a recording is watched at its own pace.
    """

    model: str = "sprites"
    device_tokens: int = 256
    host_mib: int = 64
    disk_mib: int = 256
    as_it_plays: bool = False

    def apply(self, config: HermesConfig) -> HermesConfig:
        """A configuration with these budgets.

        Raises:
            DemoError: They do not fit together.
        """
        store = config.store.model_dump() | {
            "host_bytes": self.host_mib * MIB,
            "disk_bytes": self.disk_mib * MIB,
            "keyframe_bytes": min(config.store.keyframe_bytes, self.disk_mib * MIB // 4),
        }
        memory = config.memory.model_dump() | {"device_tokens": self.device_tokens}
        try:
            return HermesConfig.model_validate(
                config.model_dump() | {"store": store, "memory": memory}
            )
        except ValueError as error:
            raise DemoError(f"These budgets do not fit together: {error}") from error

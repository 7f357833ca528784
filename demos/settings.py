"""What the page is started with, and what of it cannot be allowed. Knows no server."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from hermes_like.errors import ConfigError

#: Where the password comes from: never from the command line, where every process can read it.
PASSWORD_VARIABLE = "HERMES_LIKE_DEMO_PASSWORD"
MIN_PASSWORD_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """How the page is served.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; None: the first free one from 7860 on.
        user: Name that visitors log in with; None: nobody has to.
        password: Its password.
        models: Names that can be chosen; the first one is chosen at the start.
        models_root: Folder whose folders with a ``config.json`` can be chosen too.
        memory_root: Folder of saved memories, and of those in use.
        max_upload_bytes: Largest file that is taken.
        quota_bytes: Most that clips, uploads and memories may take together.
        max_visitors: Memories open at once.
        overrides: Configuration for every session, each ``KEY=VALUE``.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    models: tuple[str, ...] = ("sprites",)
    models_root: Path | None = None
    memory_root: Path = Path("runs/demo/memories")
    max_upload_bytes: int = 512 * 2**20
    quota_bytes: int = 8 * 2**30
    max_visitors: int = 8
    overrides: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.models:
            raise ConfigError("--model: expected at least one name, got none")
        self._check_login()

    def _check_login(self) -> None:
        if self.user is not None and not self.password:
            raise ConfigError(f"--user {self.user}: expected a password in {PASSWORD_VARIABLE}")
        if not self.is_loopback and self.user is None:
            raise ConfigError(
                f"--host {self.host}: expected --user NAME and {PASSWORD_VARIABLE} in the "
                "environment, since other machines could open the page; got none"
            )
        if self.user is not None and len(self.password or "") < MIN_PASSWORD_CHARACTERS:
            raise ConfigError(
                f"{PASSWORD_VARIABLE}: expected at least {MIN_PASSWORD_CHARACTERS} characters, "
                f"got {len(self.password or '')}"
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can open the page."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

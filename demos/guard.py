"""What the server refuses before the page's own code is reached.

Nothing is served by path: clips go out under random names that end with their visit, pictures
inside the page. Uploads are refused while the quota is used up. Knows HTTP only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

#: Routes of the page's framework that read paths or addresses out of a request, or that the page
#: does not need. Compared without regard to case, behind an optional ``/gradio_api``.
REFUSED = (
    "/file",
    "/proxy=",
    "/custom_component",
    "/deep_link",
    "/monitoring",
    "/process_recording",
    "/vibe",
    "/undo-vibe",
    "/run-history",
    "/runs",
    "/profiling",
)
PREFIX = "/gradio_api"
CLIPS = "/clip/"


class Guard:
    """Stands before the application.

    Args:
        app: What requests that may pass go to.
        may_upload: Told the bytes of an upload; a sentence if there is no room for it, else "".
    """

    def __init__(self, app: ASGIApp, may_upload: Callable[[int], str]) -> None:
        self._app, self._may_upload = app, may_upload

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        path = str(scope["path"]).lower()
        path = "/" + path.removeprefix(PREFIX).lstrip("/")
        if path.startswith(REFUSED):
            return PlainTextResponse("This is not served here.", 403)
        if path.rstrip("/") == "/upload" and scope["method"] == "POST":
            return self._check_upload(dict(scope["headers"]))
        return None

    def _check_upload(self, headers: Mapping[bytes, bytes]) -> Response | None:
        length = headers.get(b"content-length", b"")
        if not length.isdigit():
            return PlainTextResponse("An upload must say how long it is.", 411)
        sentence = self._may_upload(int(length))
        return PlainTextResponse(sentence, 413) if sentence else None


def clip_route(find: Callable[[str], Path | None]) -> Callable[[Request], Any]:
    """The handler that serves a clip under its random name.

    Args:
        find: The file behind a name; None: there is none (any more).
    """

    async def serve(request: Request) -> Response:
        path = find(str(request.path_params["token"]))
        if path is None or not path.is_file():
            return PlainTextResponse("This clip is gone.", 404)
        headers = {"Cache-Control": "private, no-store", "X-Content-Type-Options": "nosniff"}
        return FileResponse(path, media_type=_media_type(path), headers=headers)

    return serve


def _media_type(path: Path) -> str:
    types = {".mp4": "video/mp4", ".m4v": "video/mp4", ".webm": "video/webm"}
    types |= {".mov": "video/quicktime", ".ogv": "video/ogg", ".mkv": "video/x-matroska"}
    return types.get(path.suffix, "application/octet-stream")

"""The demonstration in a browser: ask about live or recorded video, and see the memory at work.

    python -m demos.app                  the same as: hermes-like demo

It listens on this machine only, makes no share link, and sends nothing anywhere.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from demos.settings import DemoSettings
from hermes_like import cli

HERE = Path(__file__).parent
#: First port that is tried when none is named.
PORT = 7860
#: Read by the framework when it is imported: nothing is reported, nothing is looked up.
_QUIET = {"GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_SHARE": "False"}
_UNWANTED = ("GRADIO_ALLOWED_PATHS", "GRADIO_SERVER_NAME", "GRADIO_ROOT_PATH")


class Demo:
    """A page that is being served.

    Args:
        settings: How.

    Attributes:
        address: Where it is opened.
    """

    def __init__(self, settings: DemoSettings) -> None:
        self._uploads = Path(tempfile.mkdtemp(prefix="hermes-like-demo-"))
        # Before the framework is imported: it reads these once.
        os.environ.update(_QUIET, GRADIO_TEMP_DIR=str(self._uploads))
        for name in _UNWANTED:
            os.environ.pop(name, None)
        from demos.page import Page
        from demos.site import Site

        self.site = Site(settings, self._uploads)
        # Loaded at once, so that the first visitor does not wait, and a wrong name is told here.
        self.site.engine(self.site.models()[0])
        self._blocks = Page(self.site).build()
        self._blocks.queue(max_size=256, default_concurrency_limit=None)
        self.address = self._launch(settings)

    def _launch(self, settings: DemoSettings) -> str:
        _, address, _ = self._blocks.launch(
            server_name=settings.host,
            server_port=settings.port,
            auth=self._login(settings),
            share=False,
            inbrowser=False,
            prevent_thread_lock=True,
            quiet=True,
            show_error=True,
            ssr_mode=False,
            mcp_server=False,
            pwa=False,
            enable_monitoring=False,
            run_history=False,
            footer_links=[],
            allowed_paths=[],
            blocked_paths=[str(self.site.saved_root)],
            max_file_size=settings.max_upload_bytes,
            app_kwargs=self._app_options(),
            theme=_theme(),
            css=(HERE / "page.css").read_text(encoding="utf-8"),
            head=f"<script>{(HERE / 'page.js').read_text(encoding='utf-8')}</script>",
        )
        return str(address)

    def _login(self, settings: DemoSettings) -> tuple[str, str] | None:
        if settings.user is None or settings.password is None:
            return None
        return settings.user, settings.password

    def _app_options(self) -> dict[str, Any]:
        from starlette.middleware import Middleware
        from starlette.routing import Route

        from demos.guard import CLIPS, Guard, clip_route

        return {
            "routes": [Route(CLIPS + "{token}", clip_route(self.site.clip))],
            "middleware": [Middleware(Guard, may_upload=self.site.may_upload)],
        }

    def close(self) -> None:
        """Stop serving, end all visits, remove what was uploaded."""
        self._blocks.close(verbose=False)
        self.site.close()
        shutil.rmtree(self._uploads, ignore_errors=True)


def _theme() -> Any:
    """Letters of the visitor's own machine: no font is fetched."""
    import gradio as gr

    sans, mono = ("system-ui", "sans-serif"), ("ui-monospace", "monospace")
    theme = gr.themes.Base(
        primary_hue="blue", neutral_hue="slate", font=sans, font_mono=mono, radius_size="lg"
    )
    return theme.set(
        button_primary_background_fill="#2a62b8",
        button_primary_background_fill_dark="#2a62b8",
        button_primary_background_fill_hover="#1f4f99",
        button_primary_background_fill_hover_dark="#1f4f99",
        button_primary_text_color="white",
        body_text_color_subdued="#4a5567",
        body_text_color_subdued_dark="#b4bfd0",
    )


def serve(settings: DemoSettings) -> None:
    """Serve until Ctrl-C or a request to end."""
    # Whoever ends the process politely gets the same tidy end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    demo = Demo(settings)
    print(f"hermes-like demo: open {demo.address} (Ctrl-C ends it)", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print("closing")
    finally:
        demo.close()


if __name__ == "__main__":
    sys.exit(cli.run(["demo", *sys.argv[1:]]))

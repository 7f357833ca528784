"""Watch cameras, print what happens to them, and ask about each minute that has passed.

python examples/monitoring.py gate=rtsp://192.0.2.7/live yard=http://192.0.2.8/mjpeg
"""

import sys
from datetime import timedelta

from hermes_like import Monitor, MonitorEvent

QUESTION = "was there a red star ?"
EVERY_S = 60.0


def tell(event: MonitorEvent) -> None:
    print(f"{event.time:%H:%M:%S} {event.stream} {event.kind}: {event.text}", flush=True)


def main(arguments: list[str], every_s: float = EVERY_S) -> None:
    cameras = dict(argument.split("=", 1) for argument in arguments)
    with Monitor(model="sprites", memory="memory", on_event=tell) as monitor:
        for name, address in cameras.items():
            monitor.add_stream(name, address)
        while not monitor.join(timeout_s=every_s):
            monitor.ask(QUESTION, since=timedelta(seconds=every_s))
        monitor.ask(QUESTION)


if __name__ == "__main__":
    main(sys.argv[1:])

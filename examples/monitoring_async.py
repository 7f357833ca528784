"""The same for asyncio: events as they come, and a question once a minute beside them.

python examples/monitoring_async.py gate=rtsp://192.0.2.7/live
"""

import asyncio
import sys
from datetime import timedelta

from hermes_like import AsyncMonitor

QUESTION = "was there a red star ?"
EVERY_S = 60.0


async def tell(monitor: AsyncMonitor) -> None:
    async for event in monitor.events():
        print(f"{event.time:%H:%M:%S} {event.stream} {event.kind}: {event.text}", flush=True)


async def main(arguments: list[str], every_s: float = EVERY_S) -> None:
    cameras = dict(argument.split("=", 1) for argument in arguments)
    async with AsyncMonitor(model="sprites", memory="memory") as monitor:
        telling = asyncio.create_task(tell(monitor))
        for name, address in cameras.items():
            await monitor.add_stream(name, address)
        while not await monitor.join(timeout_s=every_s):
            answer = await monitor.ask(QUESTION, since=timedelta(seconds=every_s))
            print(answer.text)
        async for piece in monitor.ask_stream(QUESTION, stream=next(iter(cameras))):
            print(piece, end="")
        print()
        telling.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))

"""Many cameras watched for days: states, events, questions over one or several of them."""

from hermes_like.monitor.aio import AsyncMonitor
from hermes_like.monitor.events import MonitorEvent
from hermes_like.monitor.monitor import Monitor, StreamInfo

__all__ = ["AsyncMonitor", "Monitor", "MonitorEvent", "StreamInfo"]

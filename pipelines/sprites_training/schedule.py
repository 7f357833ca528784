"""How long to train and how fast: a plan in steps that a clock may re-plan.

The learning rate warms up, stays, then falls linearly to zero. The plan counts steps, so that a
slower machine reproduces a run; with a wall-clock end the plan is re-made from the measured speed
and every change is logged.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Plan:
    """Learning rate over steps.

    Attributes:
        peak_rate: Rate between warm-up and decay.
        warmup_steps: Steps of linear warm-up.
        decay_step: Step at which the rate starts to fall.
        end_step: Step at which it is zero; training stops there.
    """

    peak_rate: float
    warmup_steps: int
    decay_step: int
    end_step: int

    def rate(self, step: int) -> float:
        """Return the learning rate of one step."""
        warm = min(1.0, (step + 1) / max(1, self.warmup_steps))
        span = max(1, self.end_step - self.decay_step)
        fall = min(1.0, max(0.0, (self.end_step - step) / span))
        return self.peak_rate * warm * fall


def seconds_until(clock: str) -> float:
    """Return the seconds until the next time the clock shows HH:MM."""
    now = datetime.now()
    hour, minute = (int(part) for part in clock.split(":"))
    then = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    if then < now - timedelta(hours=12):
        then += timedelta(days=1)
    return (then - now).total_seconds()


def replan(
    plan: Plan, step: int, seconds_per_step: float, left_s: float, decay_left_s: float
) -> Plan:
    """Fit the plan to the time that is left.

    Args:
        plan: The plan so far.
        step: The present step.
        seconds_per_step: Measured speed.
        left_s: Seconds until training must end.
        decay_left_s: Seconds until the decay should begin; ignored once it has begun.
    """
    end_step = step + max(1, int(left_s / seconds_per_step))
    if step >= plan.decay_step:
        return replace(plan, end_step=end_step)
    decay_step = step + max(1, int(decay_left_s / seconds_per_step))
    return replace(plan, decay_step=min(decay_step, end_step), end_step=end_step)


class Speed:
    """Running mean of the seconds a step takes."""

    def __init__(self) -> None:
        self.seconds_per_step = 0.5
        self._last = time.monotonic()

    def tick(self) -> None:
        """Note the end of a step."""
        now = time.monotonic()
        self.seconds_per_step += 0.02 * (now - self._last - self.seconds_per_step)
        self._last = now

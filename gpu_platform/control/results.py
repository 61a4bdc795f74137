"""How a pass over one object ended. A pass that failed raises instead."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True)
class Done:
    """Nothing more to do until something changes."""


@dataclass(frozen=True)
class RequeueAfter:
    """Look again after this delay, also when nothing changes until then."""

    delay: timedelta
    why: str
    """For the log: what is waited for."""


Result = Done | RequeueAfter

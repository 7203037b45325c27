"""How fast the simulated fleet is: a lease is short enough to run out often in a run."""

from __future__ import annotations

LEASE_SECONDS = 5.0
HEARTBEAT_SECONDS = 1.5
# After so long a result that was reported, or a task that was sent, counts as lost on its way.
REPORTED_SECONDS = 40.0
# Longer than any run.
NEVER_SECONDS = 1e6
# A message that somebody took and did not finish is claimed after this time.
STALE_SECONDS = 8.0
SWEEP_SECONDS = 2.0
LOOK_BACK_SECONDS = 3.0
SHORTEST_SWEEP_SECONDS = 0.2
GRACE_SECONDS = 6.0
PAUSE_AFTER_ERROR_SECONDS = 0.5
# Soon enough that waits of a few seconds are evicted, and that a look is close to what somebody else does.
EVICT_SECONDS = 0.5
# How long a collector waits while another of its process reads.
WAIT_TO_READ_SECONDS = 0.005
SLOTS = 3
# How long the worker of a second queue is not there.
LATE_SECONDS = (0.0, 10.0, 20.0, 30.0)
# How long a handler takes.
WORK_SECONDS = (0.0, 0.0, 0.05, 0.5, 3.0, 8.0)
# Timeouts over this are never met.
SHORT_TIMEOUT_SECONDS = 4.0
# Faults end, and everything must be terminal so much later: backoffs, leases and sweeps of the longest chain.
BOUND_SECONDS = 340.0
# What is terminal must be tidied up so much later.
TIDY_SECONDS = 60.0
# A due time that is late by more is left to catch_up: no process is away for so long.
TRIGGER_GRACE_SECONDS = 1e6
TRIGGER_LOOK_SECONDS = 0.5

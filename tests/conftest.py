"""Settings for every test: hypothesis is deterministic here; a failing example is printed."""

import os
import signal
import sys

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    print_blob=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", parent=settings.get_profile("repeatable"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# Where the environment forbids Python to keep what it has compiled, each worker would compile every
# test module anew, and each broker that a test starts all of its own modules.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell without job control starts what it puts into the background with SIGINT ignored, and every
# process below inherits that: those that tests interrupt would never receive the signal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

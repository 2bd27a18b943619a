"""The end of a process that may be paused."""

import signal
import subprocess


def end_process(process: subprocess.Popen[bytes], number: signal.Signals, timeout_s: float) -> None:
    """Ends the process with a signal, or kills it after the timeout."""
    process.send_signal(signal.SIGCONT)
    process.send_signal(number)
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

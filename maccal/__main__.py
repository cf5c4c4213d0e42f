"""`maccal` and `python -m maccal`.

The command line, which ends in one line on Ctrl-C even while it is still being imported.
"""

import os
import signal
import sys
from types import FrameType


def leave(number: int, frame: FrameType | None) -> None:
    """At once.

    An exception would pass through half-imported packages, which print it or swallow it. Nothing is
    written yet.
    """
    sys.stderr.write("maccal: interrupted\n")
    sys.stderr.flush()
    os._exit(130)


def main() -> None:
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # else whoever started us wants it so
        signal.signal(signal.SIGINT, leave)
    from maccal.cli.main import main as run

    def imported() -> None:
        signal.signal(signal.SIGINT, usual)

    run(imported)


if __name__ == "__main__":
    main()

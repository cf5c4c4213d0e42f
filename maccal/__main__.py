"""`maccal` and `python -m maccal`.

The command line, which ends in one line on Ctrl-C even while it is still being imported.
"""

import os
import signal
import sys
from importlib.metadata import version
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
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(f"maccal {version('maccal')}")
        return
    if sys.argv[1:2] == ["report"]:
        from maccal.cli.report import main as run
    else:
        from maccal.cli.main import main as run
    signal.signal(signal.SIGINT, usual)
    run()


if __name__ == "__main__":
    main()

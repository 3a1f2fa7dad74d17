"""
A child process that ends with its parent, even when the parent is killed (Linux: PR_SET_PDEATHSIG).

`ends_with_us` gives the arguments with which to start a program so; the embedded NATS server, the supervised processes
and the components of a test's control plane are started with them. The request to the kernel has to come from the child
itself. It is made by this module, run as a script, which then becomes the program; the `preexec_fn` of subprocess would
run in a copy of a process with threads, where a lock that another thread held is held for ever.

It imports nothing but the standard library: it is started without site-packages, in a few milliseconds.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
_CANNOT_EXECUTE = 127


def ends_with_us(args: Sequence[str], number: signal.Signals) -> list[str]:
    """
    Arguments that start the program `args[0]`, to which the kernel sends the signal `number` when we end.

    It is bound to the thread that starts the child, which should be the main one. Elsewhere than on Linux these are
    `args`, and the child outlives a parent that is killed.
    """
    if sys.platform != "linux":
        return list(args)
    return [sys.executable, "-I", "-S", __file__, str(int(number)), str(os.getpid()), *args]


def _become(number: int, parent: int, args: list[str]) -> None:
    """Asks the kernel for the signal, then replaces this process by the program."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it ended before the request
        os.kill(os.getpid(), number)
    try:
        os.execvp(args[0], args)  # noqa: S606 - the program that the caller of ends_with_us has named
    except OSError as error:
        sys.stderr.write(f"{args[0]} cannot be started: {error.strerror}\n")
        sys.exit(_CANNOT_EXECUTE)


if __name__ == "__main__":
    _become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])

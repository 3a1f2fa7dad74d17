"""
The snapshotter with its read side: `python -m headgate.web.serve [settings file]`.

The same as `headgate run snapshotter`, without the command line around it.
"""

import sys

from headgate.events.base import Producer
from headgate.processes.entry import Exit, run_process
from headgate.processes.runtime.settings import Settings, SettingsError, load
from headgate.web.routes import add_routes


def run(settings: Settings) -> int:
    """Run the snapshotter, read side included, until it is stopped; its exit code."""
    return run_process(Producer.SNAPSHOTTER.value, settings, routes=add_routes)


def main(arguments: list[str]) -> int:
    """Read the settings and run; mistakes are one line on stderr and exit code 2."""
    try:
        return run(load(arguments[0] if arguments else None))
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return Exit.CONFIGURATION


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""
`headgate simulate`, which is implemented in the simulated world.

The command line is below `headgate.testing` and must not import it; like a plug-in, it is loaded by name on use.
"""

import importlib

app = importlib.import_module("headgate.testing.traces.command").app

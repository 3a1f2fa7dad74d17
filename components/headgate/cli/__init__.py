"""
The command line of operators: `headgate` and its commands.

Owns: the commands, their options and their output.
Called by: users; the supervisor of `headgate up`; commands that `headgate.testing` adds.
May import: processes, adapters, machines, core, events.
"""

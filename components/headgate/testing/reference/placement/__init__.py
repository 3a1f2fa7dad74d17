"""
The kube-scheduler's recorded behaviour beside ours: placement scenarios, read, run and compared.

Owns: reading recorded scenarios, following a recorded run step by step, the virtual clock of a whole run, outcomes in
the schema of the recordings, and how many of their fields agree.
Called by: `headgate plan --scenarios`, conformance tests, `tools.placement`.
May import: core.placement, core.plan, core.config, core.kubernetes, events.
"""

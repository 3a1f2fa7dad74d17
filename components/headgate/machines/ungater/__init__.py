"""
The ungater's machine: a Job runs exactly while its workload is admitted.

Owns: resuming and suspending Jobs, their node selectors and tolerations.
Called by: the process `ungater`, the simulated world.
May import: core, events.
"""

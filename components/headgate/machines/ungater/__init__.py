"""
The ungater's machine: a Job runs exactly while its workload is admitted.

Used by: the process `ungater`, the simulated world.
May import: core, events.
"""

"""
The contract between a process and its machine: stimuli, commands, commits, answers of the API server.

Used by: The machines implement it; the process host, plans and the simulated world drive it.
May import: state, log.
"""

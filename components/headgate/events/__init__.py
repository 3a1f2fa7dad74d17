"""
The contract of the log: every event that is ever appended, and how it is written.

Owns: the types of events, commits, their encoding and signatures, the subjects, and the upcasting of old events.
Called by: everything.
May import: nothing.
"""

"""
Tools for developers, run by `make`: what is generated from the code, and checks that no linter has.

Used by: the Makefile. Not a part of the package.
May import: everything.
"""

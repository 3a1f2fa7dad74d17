"""
Tools for developers, run by `make`. Not a part of the package.

Owns: generated files (schemas, reference pages), and checks that no linter has.
Called by: the Makefile.
May import: headgate.
"""

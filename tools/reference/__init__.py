"""
The generated pages of the documentation, each from the code that it describes.

`make check` names every page that differs. `tools.reference.__main__` is the command.

Owns: `docs/reference/`: one module makes one page.
Called by: `make schemas`, which writes the pages; `make check`, by `python -m tools.reference --check`.
May import: headgate.
"""

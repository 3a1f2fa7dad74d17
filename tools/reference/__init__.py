"""
The generated pages of the documentation: `docs/reference/`, each from the code that it describes.

`make schemas` writes them. `make check` runs `python -m tools.reference --check`, which names every page that
differs. One module makes one page and may import anything of `headgate`. `tools.reference.__main__` is the command.
"""

"""
Writing the files that a tool generates, or comparing them: what `make schemas` and `make check` do with each tool.

Called as the last step of `python -m tools.<name> [--check]`.
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path


def write_or_compare(
    arguments: list[str],
    files: Mapping[Path, str],
    source: str,
    *,
    folders: Sequence[Path] = (),
    by_hand: Collection[str] = (),
) -> int:
    """
    Write the files, or with `--check` name those that differ from `source`. 0 when all is as it should be.

    What else is in the folders, but for files of the names that are written by hand, is deleted or named.
    """
    if arguments not in ([], ["--check"]):
        print(f"usage: {sys.argv[0]} [--check]", file=sys.stderr)
        return 2
    stale = [path for path, text in files.items() if not path.is_file() or path.read_text() != text]
    found = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    left = [path for path in found if path not in files and path.name not in by_hand]
    if arguments:
        for path in (*stale, *left):
            print(f"{path} differs from {source}: run `make schemas` and commit it", file=sys.stderr)
        return 1 if stale or left else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path])
    for path in left:
        path.unlink()
    return 0

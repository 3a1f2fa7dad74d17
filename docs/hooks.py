"""
A hook of mkdocs: pages of the site whose files stand elsewhere in the repository, and links to them.

`PAGES` names them. A link from any page to such a file leads to its page in the site; their own links are read as they
are read in the repository. So the same Markdown works in both places. A link to another file outside of `docs/` fails
the build: name the file as code instead.
"""

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = {
    "components/README.md": "architecture/index.md",
    "deploy/SECURITY.md": "operate/threat-model.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "SECURITY.md": "security-policy.md",
    "examples/README.md": "guides/examples.md",
    **{f"examples/{path.name}": f"guides/{path.name}" for path in sorted((ROOT / "examples").glob("*.[yps]*"))},
}
HOME: Final = {"README.md": "index.md"}
"""The README and the site's first page say the same to different readers: a link to the one leads to the other."""

_SOURCES: Final = {page: source for source, page in PAGES.items()}
_LINK: Final = re.compile(r"(\]\()([^)#\s:]+)(#[^)\s]*)?(\))")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links to files of the repository into links to their pages."""
    del config, files
    uri = page.file.src_uri
    where = posixpath.dirname(_SOURCES.get(uri, f"docs/{uri}"))

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(where, found[2]))
        known = {**PAGES, **HOME}
        if target in known:
            target = f"docs/{known[target]}"
        if not target.startswith("docs/"):
            return found[0]  # mkdocs names it
        relative = posixpath.relpath(target.removeprefix("docs/"), posixpath.dirname(uri) or ".")
        return f"{found[1]}{relative}{found[3] or ''}{found[4]}"

    return _LINK.sub(link, markdown)

"""What the documentation names exists: files, make targets, links. `make docs` checks links within the site as well."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "components/*.md", "deploy/*.md", "examples/*.md", "schemas/*.md")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md"
)
NAMED_BELOW = ("", "components", "components/headgate", "components/headgate/processes")
"""A page names a file from the root of the repository, or from a folder below which it is about."""

_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?:[\w.-]+/)+[\w.-]*|[\w-]+\.py")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_TOP = ("components/", "headgate/", "core/", "processes/", "adapters/", "events/", "cli/", "web/", "testing/", "tests/")
_TOP_TOO = ("tools/", "deploy/", "docs/", "examples/")


def parameters() -> list[object]:
    """Each page by its name."""
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES]


def paths_named(text: str) -> Iterator[str]:
    """The paths of sources that a page names as code. Patterns and placeholders are none."""
    for code in _CODE.findall(text):
        for word in code.split():
            if word.startswith((*_TOP, *_TOP_TOO)) and _PATH.fullmatch(word) and not set(word) & set("<>*{}"):
                yield word.rstrip("/")


@pytest.mark.parametrize("page", parameters())
def test_every_source_that_a_page_names_exists(page: Path) -> None:
    """A moved module is noticed here. What `.gitignore` keeps out (keys, users) is made by commands."""
    made = ("deploy/kubernetes/nats/users", "deploy/kubernetes/keys/files")
    missing = [
        name
        for name in paths_named(page.read_text())
        if name not in made and not any((ROOT / below / name).exists() for below in NAMED_BELOW)
    ]
    assert not missing


@pytest.mark.parametrize("page", parameters())
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    """Relative links, as they work where the repository is hosted."""
    links = [link.partition("#")[0] for link in _LINK.findall(page.read_text()) if not link.startswith(("http", "#"))]
    assert not [link for link in links if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", parameters())
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    """`make NAME` as code."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)", page.read_text()))
    assert named <= targets

"""The layout of the package: modules import each other without cycles."""

from pathlib import Path

import pytest
from tests.support.imports import cycles, import_graph

ROOT = Path(__file__).parents[2]
COMPONENTS = ROOT / "components"

CYCLES = {
    "at the top of a module": "import pack.two",
    "by name": "from pack import two",
    "of a name in it": "from pack.two import name",
    "in a function": "def function():\n    from pack.two import name",
    "for types only": "if TYPE_CHECKING:\n    from pack.two import Name",
}


def test_no_modules_import_each_other() -> None:
    """The import graph has no cycle, with the imports in functions and under TYPE_CHECKING."""
    graph = import_graph(COMPONENTS)
    assert sum(map(len, graph.values())) > len(graph) > 1
    found = [" <-> ".join(each) for each in cycles(graph)]
    assert not found, "modules import each other; move what they share to a module of its own:\n" + "\n".join(found)


@pytest.mark.parametrize("planted", CYCLES.values(), ids=CYCLES)
def test_each_way_to_import_is_seen(planted: str, tmp_path: Path) -> None:
    """A cycle over three modules is found and named, however one of its imports is written."""
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "__init__.py").write_text("")
    (pack / "one.py").write_text(planted)
    (pack / "two.py").write_text("from pack import three")
    (pack / "three.py").write_text("from pack.one import name\nimport json")
    (pack / "four.py").write_text("import pack.one")
    assert cycles(import_graph(tmp_path)) == [["pack.one", "pack.three", "pack.two"]]

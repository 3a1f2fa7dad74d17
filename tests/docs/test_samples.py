"""The table of Kueue's samples in the reference: whole, and of what is tried."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.kube.e2e.sample_checks import CLUSTERS, CONFIGURATIONS
from tests.kube.e2e.sample_checks_of_pods import TRIES

from headgate.core.config.fields import ConfigurationError
from headgate.core.config.reader import read_configuration
from headgate.testing.control_plane import NoAssetsError
from headgate.testing.control_plane.samples import FOLDER, named_samples, released_samples

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "samples.md"
TRIED: Final = {path for each in TRIES for path in each.paths} | CONFIGURATIONS
LABELS: Final = "tas-topology-spreading/kueue-config-patch-label-keys-to-copy.yaml"


def rows() -> dict[str, bool]:
    """The samples of the table, and whether they are marked as those of v0.6.3."""
    found = re.findall(r"^\| `([^`]+)`( \(0\.6\.3\))? \|", PAGE.read_text(), re.MULTILINE)
    assert len(found) == len(dict(found)), "a sample has two rows"
    return {path: bool(mark) for path, mark in found}


def samples_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.yaml")}


def test_each_row_is_tried_and_each_sample_that_is_tried_has_a_row() -> None:
    """Nothing is said that is not checked."""
    assert set(rows()) == TRIED


def test_the_samples_of_the_module_are_in_the_table() -> None:
    """All of them, and marked."""
    assert {path for path, is_marked in rows().items() if is_marked} == samples_in(released_samples())


def named() -> Path:
    folder = named_samples()
    if folder is None:
        raise NoAssetsError(f"{FOLDER} names no folder of samples")
    return folder


def test_the_samples_of_the_named_folder_are_in_the_table() -> None:
    """All of them but what is for kind."""
    assert samples_in(named()) - CLUSTERS <= set(rows())


HEADER: Final = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}


@pytest.mark.parametrize("path", sorted(CONFIGURATIONS - {LABELS}))
def test_a_configuration_is_refused_for_what_is_not_there(path: str) -> None:
    """A gate that Kueue 0.19 does not know is refused, and what is not a field."""
    given: dict[str, Any] = yaml.safe_load((named() / path).read_text())
    with pytest.raises(ConfigurationError, match="TASTopologySpreading" if "featureGates" in given else "data"):
        read_configuration({**HEADER, **given})


def test_the_labels_to_copy_are_read() -> None:
    """The part of the Configuration that names them."""
    given: dict[str, Any] = yaml.safe_load((named() / LABELS).read_text())
    assert read_configuration({**HEADER, **given}).integrations.label_keys_to_copy == ("app",)

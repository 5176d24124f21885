"""Node 1 of the bundled cluster, to be changed; and images of its metadata log, each folded once."""

import shutil
from pathlib import Path

import pytest
from cluster_images import remember_images
from manifests import CLUSTER


@pytest.fixture
def each_image_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of node 1 is asked in nearly every test."""
    remember_images(monkeypatch)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A copy of node 1, the one that may be a source for everything."""
    return Path(shutil.copytree(CLUSTER / "node1", tmp_path / "node1"))

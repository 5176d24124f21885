"""A node of KRaft of a release that this project otherwise starts with ZooKeeper: its one controller is named as releases before 3.9 do."""

from dataclasses import replace

import pytest
from broker_settings import Settings
from kafka_classpath import FIRST_WITH_TIERING
from kafka_node import KafkaNode
from kafka_release import RELEASES


class KraftNode(KafkaNode):
    """Its quorum has voters that the settings name. See `in_kraft`."""

    def _cluster_settings(self) -> Settings:
        settings = super()._cluster_settings()
        address = settings.pop("controller.quorum.bootstrap.servers")
        advertised = str(settings["advertised.listeners"]).partition(",")[0]
        return {**settings, "controller.quorum.voters": f"1@{address}", "advertised.listeners": advertised}

    def _quorum_options(self) -> list[str]:
        """None: the settings name the voters."""
        return []


def in_kraft(version: str, monkeypatch: pytest.MonkeyPatch) -> type[KafkaNode]:
    """The class of nodes of a release from 3.6 on in KRaft, until the end of the test."""
    if version in RELEASES and RELEASES[version].zookeeper is None:
        return KafkaNode
    release = RELEASES.get(version, replace(RELEASES[FIRST_WITH_TIERING], version=version, tools=version))
    monkeypatch.setitem(RELEASES, version, replace(release, zookeeper=None))
    return KraftNode

"""The script that restarts the brokers of a StatefulSet, with a kubectl that plays a cluster: what it does, and in which order."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from manifests import REPOSITORY

SCRIPT = REPOSITORY / "scripts/deploy/kubernetes/restart-brokers"
OWN_IMAGE = "registry.invalid/snaprebuild:0.1.0"
KUBECTL = r"""#!/bin/sh
# A cluster whose facts are files. Each starts in a millisecond, which a program of Python would not.
cd {place} || exit 9
show() { cat "$1" 2>/dev/null; }
for last; do :; done
case "$1 $2" in
    "get statefulset")
        case "$last" in
            *updateStrategy*) show strategy ;;
            *replicas*) show replicas ;;
            *updateRevision*) printf new ;;
            *) show init_image ;;
        esac ;;
    "get pod")
        case "$last" in
            *metadata.uid*) show "$3.uid" || printf %s "$3" ;;
            *revision-hash*) show "$3.revision" || printf old ;;
            *Ready*) show "$3.ready" || printf True ;;
            *) [ ! -e "$3.uid" ] || show waiting ;;
        esac ;;
    "get pods")
        case "$last" in
            *waiting.reason*) show job_waiting ;;
            *exitCode*) show stage_code ;;
            *) show job_image ;;
        esac ;;
    "get job")
        case "$(show job_looks)$(show stage_code)" in
            0) printf x > job_looks; printf , ;;
            x0) printf 1, ;;
            *) printf ,1 ;;
        esac ;;
    "create -f") sed -n 's/^  name: snaprebuild-/stage /p' >> calls; : > job_looks ;;
    "delete pod")
        echo "restart $3" >> calls
        printf again > "$3.uid"; printf new > "$3.revision"; cp ready "$3.ready"; cp looks_until_replicated under_replicated ;;
    "exec kafka-"*)
        case "$*" in
            *api-versions*)
                for number in $(seq "$(show answering)"); do echo "kafka-$number:9092 (id: $number rack: null isFenced: false) -> ("; done
                printf '\tProduce(0): 0 to 9 [usable: 9],\n)\n' ;;
            *--under-replicated-partitions)
                looks="$(show under_replicated)"
                if [ "$looks" -gt 0 ]; then
                    echo under-replicated | tee -a calls
                    printf %s "$((looks - 1))" > under_replicated
                elif [ "$(show tool_code)" = 0 ]; then
                    echo healthy >> calls
                fi ;;
            *) show unavailable ;;
        esac
        exit "$(show tool_code)" ;;
esac
"""


class Cluster:
    """Three brokers, all with the template from before.

    Attributes:
        facts: by the name of their file.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.facts = {
            "strategy": "OnDelete",
            "replicas": "3",
            "answering": "3",
            "tool_code": "0",
            "init_image": OWN_IMAGE,
            "job_image": OWN_IMAGE,
            "job_waiting": "",
            "stage_code": "0",
            "looks_until_replicated": "2",
            "under_replicated": "0",
            "unavailable": "",
            "ready": "True",
            "waiting": "",
        }
        kubectl = place / "kubectl"
        kubectl.write_text(KUBECTL.replace("{place}", str(place)))
        kubectl.chmod(0o755)

    def run(self, *ordinals: int, **more: str) -> subprocess.CompletedProcess[str]:
        """The script."""
        for name, value in self.facts.items():
            (self.place / name).write_text(value)
        settings = {"PATH": f"{self.place}:{os.environ['PATH']}", "PAUSE_SECONDS": "0", **more}
        command = [str(SCRIPT), "kafka", *map(str, ordinals)]
        return subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False, timeout=60)

    @property
    def steps(self) -> list[str]:
        """The steps so far, without repetitions."""
        calls = self.place / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return [line for number, line in enumerate(lines) if number == 0 or line != lines[number - 1]]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def steps_of(pod: str) -> list[str]:
    return [f"stage {pod}", "healthy", f"restart {pod}", "under-replicated", "healthy"]


@pytest.mark.full
def test_each_broker_is_staged_and_the_next_waits_until_it_has_caught_up(cluster: Cluster) -> None:
    done = cluster.run(1, 0)
    assert done.returncode == 0, done.stderr
    assert cluster.steps == ["healthy", *steps_of("kafka-1"), *steps_of("kafka-0")]


def test_the_same_command_continues(cluster: Cluster) -> None:
    """A pod with the present template is done, and staged snapshots that are not all of them are no reason to end."""
    cluster.facts["kafka-1.revision"] = "new"
    cluster.facts["kafka-1.uid"] = "again"
    cluster.facts["stage_code"] = "1"
    done = cluster.run(1, 0)
    assert done.returncode == 0, done.stderr
    assert "kafka-1 is done" in done.stderr
    assert "the init container rebuilds the rest" in done.stderr
    assert cluster.steps == ["healthy", *steps_of("kafka-0")]


def test_a_mount_that_is_the_log_directory_is_not_staged(cluster: Cluster) -> None:
    done = cluster.run(0, STAGE_MANIFEST="none")
    assert done.returncode == 0, done.stderr
    assert cluster.steps == ["healthy", "restart kafka-0", "under-replicated", "healthy"]


NO_TIME = {"GATE_CHECKS": "1", "GATE_SECONDS": "0", "START_SECONDS": "0"}
BEFORE_THE_FIRST_STOP = {
    "all pods would restart at once": ({"strategy": "RollingUpdate"}, "the update strategy is RollingUpdate"),
    "no init container": ({"init_image": ""}, "has no init container"),
    "under-replicated": ({"under_replicated": "1000000"}, "not in time"),
    "unavailable": ({"unavailable": "Topic: orders"}, "not in time"),
    "a broker is missing": ({"answering": "2"}, "not in time"),
    "no output of a tool that failed": ({"tool_code": "1"}, "not in time"),
    "the image cannot be pulled": ({"job_waiting": "ImagePullBackOff"}, "ImagePullBackOff. The broker was not stopped"),
    "the job cannot be created": ({"job_waiting": "CreateContainerConfigError"}, "The broker was not stopped"),
    "staging fails": ({"stage_code": "5"}, "exit code 5"),
    "another image": ({"job_image": "registry.invalid/snaprebuild:9.9.9"}, "may not be on the node"),
}


@pytest.mark.parametrize("case", BEFORE_THE_FIRST_STOP)
def test_nothing_is_restarted(case: str, cluster: Cluster) -> None:
    change, text = BEFORE_THE_FIRST_STOP[case]
    cluster.facts |= change
    done = cluster.run(1, 0, **NO_TIME)
    assert done.returncode == 1
    assert text in done.stderr
    assert not [step for step in cluster.steps if step.startswith("restart")]


AFTER_THE_FIRST_STOP = {
    "it does not catch up": ({"looks_until_replicated": "1000000"}, "not in time"),
    "it does not start": ({"ready": "False"}, "kafka-1: ready: not in time"),
    "its image cannot be pulled": ({"ready": "False", "waiting": "ErrImagePull"}, "THE BROKER IS DOWN"),
    "its init container is killed each time": (
        {"ready": "False", "waiting": "CrashLoopBackOff"},
        "THE BROKER IS DOWN",
    ),
}


@pytest.mark.parametrize("case", AFTER_THE_FIRST_STOP)
def test_no_second_broker_is_restarted(case: str, cluster: Cluster) -> None:
    change, text = AFTER_THE_FIRST_STOP[case]
    cluster.facts |= change
    done = cluster.run(1, 0, **NO_TIME)
    assert done.returncode == 1
    assert text in done.stderr
    assert [step for step in cluster.steps if step.startswith("restart")] == ["restart kafka-1"]

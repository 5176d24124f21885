"""The manifests for Kubernetes: their form, and their commands in pods next to and before a real broker."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command import snaprebuild
from log_dirs import copy_of, missing_boundaries
from manifest_rules import PLACEHOLDER, faults_of, own_containers
from manifests import REPOSITORY
from other_process import live_broker
from podman import HOST_DIRECTORIES, IMAGE, Podman
from sentences import STARTED_ALL_THE_SAME, USES_LOG_DIR

if TYPE_CHECKING:
    from kafka_node import KafkaNode

MANIFESTS = REPOSITORY / "scripts/deploy/kubernetes"
PLAIN = sorted((MANIFESTS / "plain").glob("*.yaml"))
CLAIM = MANIFESTS / "plain/state.yaml"
JOBS = [path for path in PLAIN if path != CLAIM]
PATCHES = [MANIFESTS / "statefulset/init-container.yaml", MANIFESTS / "statefulset/before-start.yaml"]
INIT_CONTAINER, BEFORE_START = PATCHES
KUBERNETES = "1.29"
VOLUME = "/var/lib/kafka/data-0"
USER = 1001
WAIT_SECONDS = 120.0


def loaded(path: Path) -> dict[str, Any]:
    import yaml  # comes with what the full tier needs

    document = yaml.safe_load(path.read_text())
    assert isinstance(document, dict)
    return document


def pod_of(document: dict[str, Any]) -> dict[str, Any]:
    """The specification of its pods."""
    specification: dict[str, Any] = document["spec"]["template"]["spec"]
    return specification


# --- form -------------------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_job_has_the_form_of_the_api(path: Path) -> None:
    import kubernetes_validate

    document = loaded(path)
    kubernetes_validate.validate(document, KUBERNETES, strict=True)
    pod = pod_of(document)
    (container,) = pod["containers"]
    mounted = {each["name"] for each in container["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}
    assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    pod["restartPolicies"] = pod.pop("restartPolicy")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.full
@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_an_init_container_has_the_form_of_the_api(path: Path) -> None:
    import kubernetes_validate

    document = patched(loaded(path))
    kubernetes_validate.validate(document, KUBERNETES, strict=True)
    assert document["spec"]["updateStrategy"] == {"type": "OnDelete"}, "the API refuses a partition with this type"


@pytest.mark.full
def test_the_claim_for_receipts_has_the_form_of_the_api() -> None:
    import kubernetes_validate

    claim = loaded(CLAIM)
    kubernetes_validate.validate(claim, KUBERNETES, strict=True)
    for path in JOBS:
        name = claim["metadata"]["name"].replace("kafka-0", "my-cluster-kafka-0" if path.stem == "strimzi" else "kafka-0")
        assert {"claimName": name} in [each.get("persistentVolumeClaim") for each in pod_of(loaded(path))["volumes"]]


def patched(patch: dict[str, Any]) -> dict[str, Any]:
    """A StatefulSet as the API has it, after a strategic merge: what is null is removed."""
    document = copy.deepcopy(patch)
    specification = document["spec"]
    strategy = {"rollingUpdate": {"partition": 0}} | specification["updateStrategy"]
    specification["updateStrategy"] = {name: value for name, value in strategy.items() if value is not None}
    specification |= {"serviceName": "kafka", "selector": {"matchLabels": {"app": "kafka"}}}
    specification["template"]["metadata"] = {"labels": {"app": "kafka"}}
    pod_of(document)["containers"] = [{"name": "kafka", "image": "kafka"}]
    return document


# --- rules ------------------------------------------------------------------------------------------------------------------


def test_every_manifest_is_looked_at() -> None:
    """A manifest is one of these, or a part of them that kustomize patches."""
    found = {path for path in MANIFESTS.rglob("*.yaml") if "kustomization" not in path.name}
    assert found == {*PLAIN, *PATCHES, MANIFESTS / "job/job.yaml", MANIFESTS / "state/claim.yaml"}
    assert len(JOBS) == 6


@pytest.mark.full
@pytest.mark.parametrize("path", [*JOBS, *PATCHES, MANIFESTS / "job/job.yaml"], ids=lambda path: path.stem)
def test_a_manifest_holds_the_rules(path: Path) -> None:
    document = loaded(path)
    assert faults_of(document) == []
    assert all(each["image"].startswith(PLACEHOLDER) for each in own_containers(pod_of(document)))


def container_of(document: dict[str, Any]) -> dict[str, Any]:
    (container,) = own_containers(pod_of(document))
    return container


def set_variable(name: str, value: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        environment = container_of(document)["env"]
        environment[:] = [each for each in environment if each["name"] != name] + [{"name": name, "value": value}]

    return change


def set_field(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        container_of(document)[name] = value

    return change


def without(name: str) -> Callable[[dict[str, Any]], None]:
    """A setting of users is removed, wherever it is."""

    def change(document: dict[str, Any]) -> None:
        pod_of(document).get("securityContext", {}).pop(name, None)
        container_of(document)["securityContext"].pop(name, None)

    return change


def without_variable(document: dict[str, Any]) -> None:
    container_of(document)["env"] = [each for each in container_of(document)["env"] if each["name"] != "HOME"]


def state_on_the_claim(document: dict[str, Any]) -> None:
    """Mounts one directory of the broker's volume a second time."""
    for each in container_of(document)["volumeMounts"]:
        if each["mountPath"] == "/var/lib/snaprebuild":
            each.update(name="data-0", subPath="snaprebuild")


def rolling(document: dict[str, Any]) -> None:
    document["spec"].pop("updateStrategy", None)


FAULTS = {
    "state in the log directory": (set_variable("XDG_STATE_HOME", VOLUME), "XDG_STATE_HOME is on a volume of a broker"),
    "home below the log directory": (set_variable("HOME", f"{VOLUME}/home"), "HOME is on a volume of a broker"),
    "cache": (set_variable("XDG_CACHE_HOME", f"{VOLUME}/."), "XDG_CACHE_HOME is on a volume of a broker"),
    "cache of the one file": (set_variable("SNAPREBUILD_CACHE_DIR", VOLUME), "SNAPREBUILD_CACHE_DIR is on a volume of a broker"),
    "temporary files": (set_variable("TMPDIR", VOLUME), "TMPDIR is on a volume of a broker"),
    "working directory": (set_field("workingDir", VOLUME), "workingDir is on a volume of a broker"),
    "a way around": (set_variable("HOME", f"/var/lib/snaprebuild/../kafka/{Path(VOLUME).name}"), "HOME is on a volume of a broker"),
    "root file system": (set_variable("HOME", "/root"), "HOME cannot be written to"),
    "left to the image": (without_variable, "HOME is left to the image"),
    "a directory of the claim": (state_on_the_claim, "HOME is on a volume of a broker"),
    "no group": (without("runAsGroup"), "runAsGroup is missing"),
    "no user": (without("runAsUser"), "runAsUser is missing"),
    "root": (without("runAsNonRoot"), "root is allowed"),
    "a root that can be written to": (without("readOnlyRootFilesystem"), "the root can be written to"),
    "no tag": (set_field("image", "registry.invalid/snaprebuild"), "the image has no fixed tag"),
    "a port is no tag": (set_field("image", "registry.invalid:5000/snaprebuild"), "the image has no fixed tag"),
    "latest": (set_field("image", "registry.invalid/snaprebuild:latest"), "the image has no fixed tag"),
    "another version": (set_field("image", "registry.invalid/snaprebuild:9.9.9"), "the image is of another version"),
    "no registry": (set_field("image", "snaprebuild:0.1.0"), "the image is pulled from a public registry"),
    "always pulled": (set_field("imagePullPolicy", "Always"), "the image is pulled though it is there"),
}
OF_JOBS = {
    "no group of the volume": (without("fsGroup"), "fsGroup is missing"),
    "groups change": (without("fsGroupChangePolicy"), "the kubelet changes the group of every file"),
}
OF_STATEFUL_SETS = {"all at once": (rolling, "all pods restart at once")}


@pytest.mark.full
def test_each_fault_of_a_manifest_is_found() -> None:
    """Also where the mount of the broker is another one."""
    for path, more in [(MANIFESTS / "plain/rebuild.yaml", OF_JOBS), *((path, OF_STATEFUL_SETS) for path in PATCHES)]:
        document = loaded(path)
        for name, (change, fault) in (FAULTS | more).items():
            changed = copy.deepcopy(document)
            change(changed)
            assert fault in faults_of(changed), (path.name, name)


HEALTHY = {
    "digest": set_field("image", f"registry.invalid/snaprebuild@sha256:{'0' * 64}"),
    "tag and port": set_field("image", "registry.invalid:5000/tools/snaprebuild:0.1.0"),
    "an own directory with a similar name": set_variable("HOME", "/var/lib/snaprebuild/data-0"),
    "a setting that is no path": set_variable("SNAPREBUILD_SETTING", "idle"),
}


@pytest.mark.full
def test_other_healthy_forms_of_a_manifest() -> None:
    for path in (MANIFESTS / "plain/rebuild.yaml", *PATCHES):
        document = loaded(path)
        for name, change in HEALTHY.items():
            changed = copy.deepcopy(document)
            change(changed)
            assert faults_of(changed) == [], (path.name, name)


# --- commands ---------------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_the_command_of_a_job_does_its_work(path: Path, tmp_path: Path) -> None:
    """In this process, with a directory in place of each volume."""
    (container,) = pod_of(loaded(path))["containers"]
    logs = copy_of("kafka27-mixed", tmp_path / "data-0")
    (logs / ".kafka_cleanshutdown").unlink()
    (tmp_path / "data-1").mkdir()
    arguments = [
        each.replace("/var/lib/kafka", str(tmp_path)).replace("/mnt/data/data0", str(tmp_path)) for each in container["args"]
    ]
    with live_broker(logs):
        run = snaprebuild(*arguments, "--as-of", "2026-11-21T12:00:00Z", "--jobs", 1)
    assert run.exit_code in (0, 1), run.stderr
    assert "usage" not in run.stderr.lower()
    assert "staged" in run.stdout if arguments[0] == "stage" else not missing_boundaries(logs / "logappend-0")


@pytest.mark.night
def test_the_plain_manifests_are_those_of_the_kustomizations(tmp_path: Path) -> None:
    subprocess.run([REPOSITORY / "scripts/deploy/kubernetes/build", tmp_path], check=True, timeout=900)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {path.name: path.read_text() for path in PLAIN}


# --- pods -------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def podman(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    found = Podman(tmp_path_factory.mktemp("podman"))
    found.load(release)
    found.build("empty", "ENV PATH=/usr/bin")
    yield found
    found.remove()


def state_of(volume: Path) -> Path:
    """The directory that takes the place of the claim for receipts."""
    return volume.with_name(f"{volume.name}-state")


def owned(volume: Path) -> None:
    """Gives all files of both claims to the user of the pods."""
    for root in (volume, state_of(volume)):
        root.mkdir(exist_ok=True)
        for path in (root, *root.rglob("*")):
            os.chown(path, USER, USER, follow_symlinks=False)


def on_host(pod: dict[str, Any], volume: Path) -> dict[str, Any]:
    """The pod with directories of this machine in place of claims, and the local image."""
    for each in pod["volumes"]:
        if "persistentVolumeClaim" in each:
            is_own = each.pop("persistentVolumeClaim")["claimName"].startswith("snaprebuild-")
            each["hostPath"] = {"path": str(state_of(volume) if is_own else volume)}
    for each in own_containers(pod):
        each["image"] = IMAGE
    pod.pop("affinity", None)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kafka-0"}, "spec": pod}


def broker_pod(patch: Path, command: list[str], volume: Path, claim: Path) -> dict[str, Any]:
    """An init container for the StatefulSet, then a real broker: a program of this machine.

    Args:
        patch: with the init container.
        command: of the broker.
        volume: with all that the broker needs.
        claim: what the init container gets of it.
    """
    pod = pod_of(loaded(patch))
    directories = [*HOST_DIRECTORIES, str(volume)]
    names = [f"host-{number}" for number in range(len(directories))]
    mounts = [
        {"name": name, "mountPath": each, "readOnly": each != str(volume)} for name, each in zip(names, directories, strict=True)
    ]
    pod["securityContext"] = {"runAsUser": USER, "runAsGroup": USER, "fsGroup": USER}
    pod["containers"] = [
        {"name": "broker", "image": "localhost/empty", "command": command, "workingDir": str(volume), "volumeMounts": mounts}
    ]
    pod["volumes"] += [{"name": "data-0", "persistentVolumeClaim": {"claimName": "data-kafka-0"}}]
    pod["volumes"] += [{"name": name, "hostPath": {"path": each}} for name, each in zip(names, directories, strict=True)]
    return on_host(pod, claim)


def wait_for(podman: Podman, container: str, pattern: str) -> str:
    deadline = time.monotonic() + WAIT_SECONDS
    while re.search(pattern, log := podman.logs(container)) is None:
        assert "Error: Could not" not in log, log
        assert time.monotonic() < deadline, log[-3000:]
        time.sleep(0.2)
    return log


def snapshots(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.snapshot")}


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A place that the user of the pods may pass through."""
    for each in (tmp_path, *tmp_path.parents):
        if each.stat().st_uid == os.geteuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o011)
    return tmp_path / "volume"


def broker_command(node: KafkaNode, volume: Path) -> list[str]:
    """Starts the broker in a pod, with its jars on the volume."""
    from java_process import JAVA
    from kafka_classpath import kafka_classpath
    from kafka_node import BROKER_MAIN

    jars = volume / "jars"
    jars.mkdir()
    for each in kafka_classpath("3.9.2").split(os.pathsep):
        shutil.copy(each, jars)
    return [*JAVA, "-Xmx256m", "-cp", f"{jars}/*", BROKER_MAIN, str(node.root / "server.properties")]


@pytest.mark.night
@pytest.mark.broker
@pytest.mark.root
@pytest.mark.release
def test_staged_next_to_a_broker_and_installed_before_it_starts_again(podman: Podman, volume: Path) -> None:
    """Kafka's own snapshots are the expected ones: they are removed, and must be there again each time the broker starts."""
    from kafka_node import KafkaNode
    from kafka_release import RELEASES

    with KafkaNode(volume / "kafka", version="3.9.2", tiering=False) as node:
        node.start()
        node.create_topic("orders", {"segment.bytes": 16384})
        node.produce("orders", 2000)
        node.stop()
        directory = node.log_dir / "orders-0"
        expected = snapshots(directory)
        assert len(expected) > 3
        for name in sorted(expected)[:-1]:
            (directory / name).unlink()
        node.start()
        owned(volume)
        with podman.pod(on_host(pod_of(loaded(MANIFESTS / "plain/stage.yaml")), volume)):
            staged = wait_for(podman, "kafka-0-snaprebuild", "staged in")
        installs = ["install", "--plan", f"{VOLUME}/staged/plan.jsonl"]
        options = ("--rm", "--network=none", f"--user={USER}:{USER}", f"--volume={volume}:{VOLUME}")
        refused = podman.run("run", *options, IMAGE, *installs, code=3)
        node.stop()
        assert USES_LOG_DIR in refused.stderr, staged
        command = broker_command(node, volume)
        pod_names = [directory / name for name in sorted(expected)[:-1]]

        def start(said: str) -> None:
            owned(volume)
            with podman.pod(broker_pod(INIT_CONTAINER, command, volume, volume)):
                wait_for(podman, "kafka-0-broker", RELEASES["3.9.2"].started)
                assert said in podman.logs("kafka-0-install-snapshots")
                assert {path.name: path.read_bytes() for path in pod_names} == {
                    path.name: expected[path.name] for path in pod_names
                }

        start(f"{len(pod_names)} snapshots installed")
        assert all(path.stat().st_nlink == 2 for path in pod_names), "they are links to the staged files"
        start("Nothing was installed")
        for path in pod_names:
            path.unlink()
        plan = volume / "staged/plan.jsonl"
        plan.write_text(plan.read_text().replace('"segments"', '"segment"'))
        start(f"snaprebuild {STARTED_ALL_THE_SAME}")
        assert list(state_of(volume).glob("snaprebuild-receipt-*.jsonl")) == [], "a stage needs none"


@pytest.mark.night
@pytest.mark.broker
@pytest.mark.root
@pytest.mark.release
def test_a_broker_starts_whose_claim_is_its_log_directory(podman: Podman, volume: Path) -> None:
    """The job next to it, then the init container before it: snapshots are there, and no name that a broker does not know."""
    from kafka_node import KafkaNode
    from kafka_release import RELEASES

    with KafkaNode(volume / "kafka", version="3.9.2", tiering=False) as node:
        node.start()
        node.create_topic("orders", {"segment.bytes": 16384})
        node.produce("orders", 2000)
        node.stop()
        directory = node.log_dir / "orders-0"
        expected = snapshots(directory)
        missing = sorted(expected)[:-1]
        names = {path.name for path in node.log_dir.iterdir()}
        for name in missing[::2]:
            (directory / name).unlink()
        node.start()
        owned(volume)
        owned(node.log_dir)
        with podman.pod(on_host(pod_of(loaded(MANIFESTS / "plain/rebuild.yaml")), node.log_dir)):
            wait_for(podman, "kafka-0-snaprebuild", "written")
        node.stop()
        assert {name: (directory / name).read_bytes() for name in missing} == {name: expected[name] for name in missing}
        assert len(list(state_of(node.log_dir).glob("snaprebuild-receipt-*.jsonl"))) == 1
        for name in missing:
            (directory / name).unlink()
        shutil.rmtree(state_of(node.log_dir))
        command = broker_command(node, volume)
        owned(volume)
        with podman.pod(broker_pod(BEFORE_START, command, volume, node.log_dir)):
            wait_for(podman, "kafka-0-broker", RELEASES["3.9.2"].started)
            assert "receipt /var/lib/snaprebuild/snaprebuild-receipt-" in podman.logs("kafka-0-install-snapshots")
            assert {name: (directory / name).read_bytes() for name in missing} == {name: expected[name] for name in missing}
        assert {path.name for path in node.log_dir.iterdir() if path.is_dir()} == {
            name for name in names if (node.log_dir / name).is_dir()
        }

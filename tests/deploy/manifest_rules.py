"""Rules of every manifest, by which a container of ours harms no broker. The API accepts manifests that break each of these
rules."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from snaprebuild import __version__

IDS = ("runAsUser", "runAsGroup")
NEEDED_PLACES = ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "TMPDIR")
OWN_CLAIM = "snaprebuild-"
TAG = re.compile(r"[^/]:(?P<tag>[\w.-]+)$")
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
PLACEHOLDER = "registry.invalid/"
"""RFC 6761: no name below ``.invalid`` is ever that of a host."""


def is_at_or_below(path: str, directory: str) -> bool:
    path, directory = os.path.normpath(path), os.path.normpath(directory)
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def own_containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Containers that run the program; a broker's container is not among them."""
    every = [*pod.get("initContainers", ()), *pod.get("containers", ())]
    return [each for each in every if "snaprebuild" in each.get("image", "")]


def own_volumes(pod: dict[str, Any]) -> set[str]:
    """Volumes that hold no log directory: those of the pod, and claims of our own."""
    names = set()
    for each in pod.get("volumes", ()):
        claim = each.get("persistentVolumeClaim", {}).get("claimName", "")
        if "emptyDir" in each or claim.startswith(OWN_CLAIM):
            names.add(each["name"])
    return names


def places_of(container: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each path where the container may create files by itself: its name and the path."""
    if "workingDir" in container:
        yield "workingDir", container["workingDir"]
    for each in container.get("env", ()):
        value = each.get("value", "")
        if each["name"] == "XDG_STATE_HOME":
            value = f"{value}/snaprebuild"
        if value.startswith("/") and each["name"] != "PATH":
            yield each["name"], value


def faults_of(document: dict[str, Any]) -> list[str]:
    """The broken rules of a job or a StatefulSet, each in a few words."""
    pod = document["spec"]["template"]["spec"]
    containers = own_containers(pod)
    faults = [] if containers else ["no container of ours"]
    if document["kind"] == "StatefulSet" and document["spec"].get("updateStrategy", {}).get("type") != "OnDelete":
        faults.append("all pods restart at once")
    for container in containers:
        faults += _faults_of_places(pod, container)
        faults += _faults_of_image(container["image"])
        if container.get("imagePullPolicy") != "IfNotPresent":
            faults.append("the image is pulled though it is there")
        faults += _faults_of_users(pod, container)
    return faults


def _faults_of_places(pod: dict[str, Any], container: dict[str, Any]) -> Iterator[str]:
    safe = own_volumes(pod)
    mounts = container.get("volumeMounts", ())
    data = [each["mountPath"] for each in mounts if each["name"] not in safe]
    writable = [each["mountPath"] for each in mounts if each["name"] in safe]
    places = list(places_of(container))
    if not data:
        yield "no volume of a broker"
    for name in (*NEEDED_PLACES, "workingDir"):
        if name not in dict(places):
            yield f"{name} is left to the image"
    for name, path in places:
        if any(is_at_or_below(path, each) for each in data):
            yield f"{name} is on a volume of a broker"
        elif not any(is_at_or_below(path, each) for each in writable):
            yield f"{name} cannot be written to"
    for own in writable:
        if any(is_at_or_below(own, each) for each in data):
            yield f"{own} is mounted into a volume of a broker"


def _faults_of_image(image: str) -> Iterator[str]:
    if DIGEST.search(image) is not None:
        return
    tag = TAG.search(image)
    if tag is None or tag["tag"] == "latest":
        yield "the image has no fixed tag"
    elif tag["tag"] != __version__:
        yield "the image is of another version"
    if "/" not in image:
        yield "the image is pulled from a public registry"


def _faults_of_users(pod: dict[str, Any], container: dict[str, Any]) -> Iterator[str]:
    """All ids, or none where the platform gives them to the broker and to us."""
    in_pod, own = pod.get("securityContext", {}), container.get("securityContext", {})
    if not own.get("readOnlyRootFilesystem"):
        yield "the root can be written to"
    if not {**in_pod, **own}.get("runAsNonRoot"):
        yield "root is allowed"
    is_job = "containers" in pod and container in pod["containers"]
    names = (*IDS, "fsGroup") if is_job else IDS
    given = [name for name in names if name in in_pod or name in own]
    if given and len(given) < len(names):
        missing = next(name for name in names if name not in given)
        yield f"{missing} is missing"
    if is_job and in_pod.get("fsGroupChangePolicy") != "OnRootMismatch":
        yield "the kubelet changes the group of every file"

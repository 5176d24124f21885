"""Which configurations are masked: as the Admin API of a real broker masks them, name by name."""

from __future__ import annotations

import random
import subprocess

import pytest
from kafka_classpath import java_program

from formats.known_configs import known_configs
from snaprebuild.cluster.metadata_image import ConfigResource, ResourceType
from snaprebuild.cluster.metadata_secrets import Mask, mask_of

pytestmark = pytest.mark.kafka

BROKER = int(ResourceType.BROKER)


def asked_names() -> list[tuple[int, str]]:
    """Every name, of every type and of others; behind the prefix of a listener, and of a mechanism; and names that nobody knows."""
    random_ = random.Random(4)
    known = [(number, name) for number, names in known_configs().items() for name in names]
    others = [(random_.choice((2, 4, 16, 32)), name) for _, name in known[::5]]
    broker_names = [name for number, name in known if number == BROKER]
    prefixed = [(BROKER, f"listener.name.{listener}.{name}") for name in broker_names for listener in ("external", "a_b")]
    mechanisms = [(BROKER, f"listener.name.x.scram-sha-512.{name}") for name in broker_names if "sasl" in name or "reauth" in name]
    unknown = ["my.secret", "x", "ssl.keystore.passwords", "listener.name.ssl.key.password", "listener.name.x", "listener.name.x."]
    unknown += ["listener.name.x.y.ssl.key.password", "sasl.jaas.config.x", "listener.name.x.asasl.jaas.config", "SSL.KEY.PASSWORD"]
    return [*known, *others, *prefixed, *mechanisms, *((number, name) for name in unknown for number in (2, 4, 16, 32))]


def test_what_is_masked_is_what_a_broker_masks() -> None:
    asked = asked_names()
    lines = "".join(f"{number} {name}\n" for number, name in asked)
    done = subprocess.run(java_program("KnownConfigs"), input=lines, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    words = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("= ")]
    listed = {(int(each[0]), each[1]): each[2] for each in words if len(each) == 3}
    ours = {(number, name): kind for number, names in known_configs().items() for name, kind in names.items()}
    assert {each: "secret" if ours.get(each) else "plain" for each in listed} == listed
    assert listed.keys() <= ours.keys()
    answers = [each[0] for each in words if len(each) == 1]
    assert len(answers) == len(asked)
    masked = 0
    for (number, name), answer in zip(asked, answers, strict=True):
        mask = mask_of(ConfigResource(number, "1"), name)
        if mask is None and answer == "masked":
            # Of a release before: this one no longer knows the name.
            rest = name.removeprefix("listener.name.").partition(".")[2] if name.startswith("listener.name.") else name
            assert (number, rest) not in listed, name
            continue
        assert (mask is not None) == (answer == "masked"), (number, name, mask)
        masked += mask is Mask.SECRET
    assert masked > 40

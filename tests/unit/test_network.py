"""Which network a lab takes, and that its names fit the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.errors import LabError
from fleet.lab.lab import Lab
from fleet.lab.network import Network, choose


def test_the_seed_says_where_to_begin() -> None:
    assert choose(0x1234, []) == "10.77.52.0/24"


def test_a_taken_network_is_stepped_over() -> None:
    assert choose(255, ["10.77.255.0/24"]) == "10.77.0.0/24"
    assert choose(5, ["10.77.5.0/25", "10.77.6.7"]) == "10.77.7.0/24"


def test_a_wide_route_moves_to_another_space() -> None:
    assert choose(5, ["10.0.0.0/8"]) == "172.29.5.0/24"


def test_no_network_at_all() -> None:
    with pytest.raises(LabError, match="no free private /24"):
        choose(5, ["0.0.0.0/1", "128.0.0.0/1"])


def test_addresses_and_hardware_addresses() -> None:
    network = Network("fl00a1ff", "10.77.3.0/24", "00a1ff")
    assert network.address(7) == "10.77.3.7"
    assert network.mac(7) == "02:00:a1:ff:00:07"


def test_names_fit_the_kernel_and_differ_by_checkout() -> None:
    one, two = Lab(Path("/a")), Lab(Path("/b"))
    assert one.id != two.id
    for lab in (one, two):
        uplink = Network(lab.prefix, "10.77.3.0/24", lab.id).uplink
        assert lab.id in uplink
        assert len(uplink) <= 15


def test_one_checkout_may_have_several_labs(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = []
    for name in ("", "gw0", "gw1"):
        monkeypatch.setenv("FLEET_LAB_NAME", name)
        ids.append(Lab(Path("/a")).id)
    monkeypatch.delenv("FLEET_LAB_NAME")
    assert len(set(ids)) == 3
    assert Lab(Path("/a")).id == ids[0]


def test_a_private_path_below_another_is_hidden_with_it() -> None:
    assert "/srv/fleet" not in Lab(Path("/srv/fleet")).hidden()
    assert "/opt/fleet" in Lab(Path("/opt/fleet")).hidden()
    assert "/" not in Lab(Path("/")).hidden()
    assert "/usr" not in Lab(Path("/usr")).hidden()

"""What a machine is made of: GPUs, fast network, models, scratch space. Probes in the manner of `fleet.probes`."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fleet.model.base import Model
from fleet.model.inventory import Accelerator
from fleet.probes import DockerAccess, Gpu, Probe

MOST_MODELS = 200
"""Models of one host that are listed."""

_INSTINCT = {
    "0x740f": "MI210", "0x7408": "MI250X", "0x740c": "MI250X", "0x738c": "MI100",
    "0x74a0": "MI300A", "0x74a1": "MI300X", "0x74a9": "MI300X", "0x74b5": "MI300X", "0x74bd": "MI300X",
    "0x74a2": "MI308X", "0x74a8": "MI308X", "0x74b6": "MI308X", "0x74a5": "MI325X", "0x74b9": "MI325X",
    "0x75a0": "MI350X", "0x75b0": "MI350X", "0x75a3": "MI355X", "0x75b3": "MI355X",
}  # fmt: skip
"""PCI device IDs of AMD's Instinct GPUs (libdrm's amdgpu.ids): the driver does not name each of them."""

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PATH = re.compile(r"(/[A-Za-z0-9._@+-]+)+")


class Nic(Model):
    """An RDMA device: the network interfaces that carry its addresses (its own, and those on top of it)."""

    name: str
    active: bool
    interfaces: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hardware:
    """One machine as it was found. interfaces: ordinary ones, each like a device of its own name. models: by folder,
    None where that took too long; scratch: free bytes by folder."""

    docker: DockerAccess
    sudo: bool = False
    docker_cause: str = ""
    accelerator: Accelerator = "none"
    gpus: int = 0
    gpu: str = ""
    nics: tuple[Nic, ...] = ()
    interfaces: tuple[Nic, ...] = ()
    models: dict[str, tuple[str, ...]] | None = field(default_factory=dict)
    scratch: dict[str, int] = field(default_factory=dict)

    @property
    def active(self) -> tuple[Nic, ...]:
        """The RDMA devices with a link."""
        return tuple(nic for nic in self.nics if nic.active)

    @property
    def addresses(self) -> dict[str, list[Nic]]:
        """Addresses of the fast network, and the devices that have each."""
        return _by_address(self.active)

    @property
    def eligible(self) -> dict[str, list[Nic]]:
        """The addresses that an operator may choose from: ordinary interfaces where no RDMA device has any."""
        return self.addresses or _by_address(self.interfaces)


def _by_address(nics: Iterable[Nic]) -> dict[str, list[Nic]]:
    found: dict[str, list[Nic]] = {}
    for nic in nics:
        for address in nic.addresses:
            found.setdefault(address, []).append(nic)
    return found


# --- GPUs -----------------------------------------------------------------------------------------------------------

DRIVERS: Probe[tuple[str, ...]] = Probe(
    (
        "bash",
        "-c",
        "test -e /dev/kfd && test -d /dev/dri && echo rocm; "
        "{ test -e /dev/nvidiactl || command -v nvidia-smi >/dev/null; } && echo cuda; true",
    ),
    lambda code, out, err: tuple(word for word in ("rocm", "cuda") if word in out.split()),
)
"""Which GPU drivers the machine has."""

_ROCM_NAMES = (
    "for dir in /sys/class/drm/card*/device; do "
    'test -r "$dir/mem_info_vram_total" || continue; '
    'printf "%s|%s\\n" "$(cat "$dir/device" 2>/dev/null)" "$(cat "$dir/product_name" 2>/dev/null)"; done'
)
_CUDA_NAMES = (
    'out=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null) && echo "$out" || '
    "sed -n 's/^Model:[[:space:]]*//p' /proc/driver/nvidia/gpus/*/information 2>/dev/null"
)


def _rocm_names(code: int, out: str, err: str) -> tuple[str, ...]:
    rows = [line.partition("|") for line in out.splitlines() if "|" in line]
    return tuple(_INSTINCT.get(device.strip().lower(), "") or name.strip() for device, _, name in rows)


ROCM_NAMES: Probe[tuple[str, ...]] = Probe(("bash", "-c", _ROCM_NAMES), _rocm_names)
"""What each GPU is, "" where the driver does not say."""

CUDA_NAMES: Probe[tuple[str, ...]] = Probe(
    ("bash", "-c", _CUDA_NAMES), lambda code, out, err: tuple(line.strip() for line in out.splitlines() if line.strip())
)
"""The same for NVIDIA: from nvidia-smi, else from the driver's own files."""


def model_name(names: Iterable[str]) -> str:
    """The short name of most of the GPUs, as runner labels have it: mi355x, h100; "" where none is named."""
    short = Counter(name for name in map(_short, names) if name)
    return max(short, key=lambda name: short[name], default="")


def _short(name: str) -> str:
    words: list[str] = _WORD.findall(name.replace("-", " "))
    for word in words:
        if re.fullmatch(r"[A-Za-z]{1,3}\d+[A-Za-z]*", word):
            return word.lower()
    makers = {"amd", "nvidia", "geforce", "tesla", "quadro", "radeon", "instinct", "graphics"}
    return "-".join(word.lower() for word in words if word.lower() not in makers)


def chosen(found: dict[Accelerator, Sequence[Gpu]]) -> Accelerator:
    """The kind of GPU to use: that with the most memory. A processor's own graphics beside real GPUs does not count."""
    return max(found, key=lambda kind: sum(gpu.total for gpu in found[kind]), default="none")


# --- fast network ---------------------------------------------------------------------------------------------------

# An interface's address may lie on what is built on top of it: a bond, a bridge, a VLAN.
_RDMA = """for dir in /sys/class/infiniband/*; do test -d "$dir" || continue
  for port in "$dir"/ports/*; do
    state=$(cat "$port/state" 2>/dev/null)
    devs=$(ls "$dir/device/net" 2>/dev/null)
    test -n "$devs" || devs=$(cat "$port/gid_attrs/ndevs/0" 2>/dev/null)
    for dev in $devs; do
      for upper in /sys/class/net/"$dev"/upper_*; do test -e "$upper" && devs="$devs ${upper##*/upper_}"; done
    done
    echo nic "${dir##*/}" "${state##* }" $devs
  done
done
ip -o addr show scope global 2>/dev/null
true"""


_CONTAINERS = re.compile(r"docker|br-|veth|virbr|cni|flannel|cali|podman|lxc")
"""Interfaces of containers' and virtual machines' own networks begin so: no other host reaches their addresses."""

Held = dict[str, dict[str, list[str]]]
"""Addresses by interface and family."""


def _held(rows: Iterable[Sequence[str]]) -> Held:
    held: Held = {}
    for row in rows:
        if len(row) > 3 and row[2] in ("inet", "inet6") and _is_address(address := row[3].partition("/")[0]):
            held.setdefault(row[1].partition("@")[0], {}).setdefault(row[2], []).append(address)
    return held


def _network(code: int, out: str, err: str) -> tuple[tuple[Nic, ...], tuple[Nic, ...]]:
    held = _held(line.split() for line in out.splitlines())
    plain = (
        Nic(name=name, active=True, interfaces=(name,), addresses=_addresses([name], held))
        for name in held
        if not _CONTAINERS.match(name)
    )
    return _rdma(code, out, err), tuple(plain)


def _rdma(code: int, out: str, err: str) -> tuple[Nic, ...]:
    rows = [line.split() for line in out.splitlines()]
    held = _held(rows)
    found: dict[str, Nic] = {}
    for row in rows:
        if row[:1] != ["nic"] or len(row) < 3 or not _WORD.fullmatch(row[1]):
            continue
        before = found.get(row[1], Nic(name=row[1], active=False))
        interfaces = tuple(dict.fromkeys((*before.interfaces, *row[3:])))
        found[row[1]] = Nic(
            name=row[1],
            active=before.active or row[2] == "ACTIVE",
            interfaces=interfaces,
            addresses=_addresses(interfaces, held),
        )
    return tuple(sorted(found.values(), key=lambda nic: _natural(nic.name)))


def _addresses(interfaces: Sequence[str], held: Held) -> tuple[str, ...]:
    """The IPv4 addresses, or those of IPv6 where there is none."""
    for family in ("inet", "inet6"):
        found = [address for one in interfaces for address in held.get(one, {}).get(family, ())]
        if found:
            return tuple(dict.fromkeys(found))
    return ()


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _natural(name: str) -> list[tuple[str, int]]:
    """rdma2 before rdma10."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", name)]


NETWORK: Probe[tuple[tuple[Nic, ...], tuple[Nic, ...]]] = Probe(("env", "LC_ALL=C", "bash", "-c", _RDMA), _network)
"""The RDMA devices, and the ordinary interfaces with an address, each like a device of its own name."""


def picked(nic: Nic, word: str) -> list[str]:
    """Those of a device's addresses that `word` means: a device, an interface, an address or a network."""
    if word == nic.name or word in nic.interfaces:
        return list(nic.addresses)
    try:
        network = ipaddress.ip_network(word, strict=False)
    except ValueError:
        return []
    return [address for address in nic.addresses if ipaddress.ip_address(address) in network]


# --- folders --------------------------------------------------------------------------------------------------------

# A model is a folder with a config.json. A mount that hangs must not hang the rest: `timeout` gives up first.
_MODELS = """shopt -s nullglob
for dir in "$@" /models /data/models /data/*/models /mnt/models /mnt/*/models /srv/models /opt/models /raid/models \\
           /scratch/models /nvme*/models /shared/models; do
  test -d "$dir" || continue
  printf '%s\\t\\n' "$dir"
  for file in "$dir"/*/config.json; do printf '%s\\t%s\\n' "$dir" "${file%/config.json}"; done | head -n MOST
done""".replace("MOST", str(MOST_MODELS))
_SCRATCH = """shopt -s nullglob
free() {
  test -d "$2" && test -w "$2" || return
  df -PB1 -- "$2" 2>/dev/null | { read -r _; read -r _ _ _ free _; printf '%s\\t%s\\n' "$1" "$free"; }
}
at=$1
while test ! -e "$at"; do at=${at%/*}; at=${at:-/}; done
free "$1" "$at"
for dir in /scratch /data /data/* /mnt/* /local /raid /nvme* /var/tmp; do
  test "$dir/fleet" = "$1" || free "$dir/fleet" "$dir"
done"""
SECONDS = 10
"""How long a machine may look for folders."""


def models(*folders: str) -> Probe[dict[str, tuple[str, ...]] | None]:
    """The models in these folders and in the usual ones, as far as they are there; None if it took too long."""
    argv = ("timeout", str(SECONDS), "bash", "-c", _MODELS, "_", *folders)
    return Probe(argv, lambda code, out, err: None if code in (124, 137) else _models(out))


def _models(out: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for folder, _, path in (line.partition("\t") for line in out.splitlines()):
        if _PATH.fullmatch(folder):
            names = found.setdefault(folder, [])
            names += [name] if (name := path.rpartition("/")[2]) and name not in names else []
    return {folder: tuple(names) for folder, names in found.items()}


def scratch(folder: str) -> Probe[dict[str, int]]:
    """Free bytes at a folder and at others that could take its place, as far as this user may write there."""
    return Probe(("timeout", str(SECONDS), "bash", "-c", _SCRATCH, "_", folder), lambda code, out, err: _scratch(out))


def _scratch(out: str) -> dict[str, int]:
    rows = [line.partition("\t") for line in out.splitlines()]
    return {path: int(free) for path, _, free in rows if free.isdigit() and _PATH.fullmatch(path)}

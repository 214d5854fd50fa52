"""`invoke trust` against real sshds: what is shown, what is written down, and what never is."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet import trust, ui
from fleet.errors import FleetError, UsageError
from fleet.hosts.ssh import SSH
from fleet.hosts.trust import Found, Known, entries, record
from fleet.settings import Settings
from tests import sshd
from tests.sshd import Sshd

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd.running(tmp_path_factory.mktemp("trust") / "sshd") as running:
        yield running


@pytest.fixture
def known(tmp_path: Path) -> Path:
    return tmp_path / "ssh" / "known_hosts"


def settled(tmp_path: Path, known: Path, **hosts: str) -> Settings:
    """An inventory whose ssh_config names the known_hosts file."""
    config = tmp_path / "config"
    config.write_text(f"Host *\n  UserKnownHostsFile {known}\n  GlobalKnownHostsFile /dev/null\n")
    lines = "\n".join(f"    {name}: {{address: 127.0.0.1, {rest}}}" for name, rest in hosts.items())
    path = tmp_path / "inventory.yaml"
    path.write_text(f"all:\n  vars: {{ssh_config: {config}, user: root}}\n  hosts:\n{lines}\n")
    return Settings(inventory=path)


def own(server: Sshd) -> tuple[str, str]:
    """Its key as known_hosts has it, and its fingerprint as ssh-keygen tells it."""
    public = server.folder / "hostkey.pub"
    told = subprocess.run(["ssh-keygen", "-lf", str(public)], capture_output=True, text=True, check=True, timeout=10)
    return " ".join(public.read_text().split()[:2]), told.stdout.split()[1]


def line(server: Sshd, key: str = "") -> str:
    return f"[127.0.0.1]:{server.port} {key or own(server)[0]}\n"


def other_key(tmp_path: Path) -> str:
    return " ".join(sshd.keygen(tmp_path / "other").with_suffix(".pub").read_text().split()[:2])


def one(tmp_path: Path, known: Path, server: Sshd) -> Settings:
    return settled(tmp_path, known, n1=f"port: {server.port}")


def test_an_unknown_key_is_shown_and_not_written(tmp_path: Path, known: Path, server: Sshd, capsys: Captured) -> None:
    settings = one(tmp_path, known, server)
    assert trust.run(settings) == 3
    said = capsys.readouterr().out
    print_ = own(server)[1]
    assert said.splitlines()[1].split() == ["n1", "ssh-ed25519", print_, "unknown"]
    assert f"  invoke trust --inventory {settings.inventory} --limit n1 --accept {print_}\n" in said
    assert not known.exists()


def test_an_accepted_key_is_written_and_believed(tmp_path: Path, known: Path, server: Sshd) -> None:
    settings = one(tmp_path, known, server)
    assert trust.run(settings, accept=[own(server)[1]]) is None
    assert known.read_text() == line(server)
    assert known.stat().st_mode & 0o777 == 0o600
    assert known.parent.stat().st_mode & 0o777 == 0o700
    assert trust.run(settings) is None
    host = SSH(
        "n1", address="127.0.0.1", port=server.port, user="root", identity=str(server.key), known_hosts=str(known)
    )
    assert host.run(["echo", "hi"]).out == "hi\n"
    host.close()


def test_yes_writes_unknown_keys_and_never_changed_ones(
    tmp_path: Path, known: Path, server: Sshd, capsys: Captured
) -> None:
    known.parent.mkdir()
    with sshd.running(tmp_path / "second") as second:
        settings = settled(tmp_path, known, n1=f"port: {server.port}", n2=f"port: {second.port}")
        before = line(second, other_key(tmp_path))
        known.write_text("# mine" + "\n" + before.rstrip("\n"))
        assert trust.run(settings, yes=True) == 3
        assert known.read_text() == f"# mine\n{before}{line(server)}"
        said = capsys.readouterr().out
        assert "n2: THE HOST KEY HAS CHANGED." in said
        now = own(second)[1]
        assert f"  it shows   ssh-ed25519 {now}" in said
        (old,) = entries(str(known), f"[127.0.0.1]:{second.port}")
        assert f"  on record  ssh-ed25519 {old.fingerprint}  {known}:2" in said
        assert f"--limit n2 --accept {now}" in said
        assert trust.run(settings, accept=[now]) is None
        assert known.read_text() == f"# mine\n{line(server)}{line(second)}"


def test_a_wrong_fingerprint_changes_nothing(tmp_path: Path, known: Path, server: Sshd, capsys: Captured) -> None:
    settings = one(tmp_path, known, server)
    strange = "SHA256:" + "A" * 43
    assert trust.run(settings, accept=[strange]) == 3
    assert capsys.readouterr().err == f"--accept {strange}: no host shows this key\n"
    assert not known.exists()
    with pytest.raises(UsageError, match="a fingerprint expected"):
        trust.run(settings, accept=["MD5:aa"])


def test_on_a_terminal_it_asks_for_unknown_keys_only(
    tmp_path: Path, known: Path, server: Sshd, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    asked: list[str] = []
    answers = iter([False, True])
    monkeypatch.setattr(ui, "asks", lambda: True)
    monkeypatch.setattr(ui, "confirm", lambda question: asked.append(question) or next(answers))
    settings = one(tmp_path, known, server)
    assert trust.run(settings) == 3
    assert not known.exists()
    assert trust.run(settings) is None
    assert f"shows ssh-ed25519 {own(server)[1]}; none is on record" in capsys.readouterr().out
    known.write_text(line(server, other_key(tmp_path)))
    assert trust.run(settings) == 3
    assert len(asked) == 2


def test_json(tmp_path: Path, known: Path, server: Sshd, capsys: Captured) -> None:
    settings = settled(tmp_path, known, n1=f"port: {server.port}", n2="port: 1")
    assert trust.run(settings, json=True) == 3
    first, second = json.loads(capsys.readouterr().out)
    assert (first["host"], first["fingerprint"], first["state"]) == ("n1", own(server)[1], "unknown")
    assert (first["trusted"], first["recorded"], first["file"]) == (False, [], str(known))
    assert (second["host"], second["state"], second["trusted"]) == ("n2", "unreached", False)
    assert "connection refused" in second["error"]


def test_behind_a_gateway_first_its_key_then_the_hosts(
    tmp_path: Path, known: Path, server: Sshd, capsys: Captured
) -> None:
    with sshd.running(tmp_path / "inner") as inner:
        gateway = f"root@127.0.0.1:{server.port}"
        settings = settled(tmp_path, known, n1=f'port: {inner.port}, gateway: "{gateway}", identity: {server.key}')
        assert trust.run(settings) == 3
        said = capsys.readouterr()
        assert "127.0.0.1 (gateway)" in said.out
        assert "n1: not looked at: its gateway 127.0.0.1 is not trusted" in said.err
        assert trust.run(settings, accept=[own(server)[1], own(inner)[1]]) is None
        assert known.read_text() == line(server) + line(inner)


def test_hosts_that_are_in_no_inventory(tmp_path: Path, known: Path, server: Sshd, home: Path) -> None:
    settings = Settings(inventory=tmp_path / "none.yaml")
    word = f"root@127.0.0.1:{server.port}"
    assert trust.run(settings, hosts=[word], accept=[own(server)[1]]) is None
    assert (home / ".ssh" / "known_hosts").read_text() == line(server)
    with pytest.raises(UsageError, match="exclude each other"):
        trust.run(settings, hosts=[word], limit=["a"])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


# --- the file -------------------------------------------------------------------------------------------------------


def found(path: Path, key: str = "TkVX") -> Found:
    known = tuple(entries(str(path), "h1"))
    return Found("h1", "h1:22 as ops", str(path), "ssh-ed25519", key, known)


def test_other_names_other_hosts_and_comments_stay(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(
        "# c\n\nh1,192.0.2.1 ssh-ed25519 T0xE words\nh2 ssh-ed25519 T0xE\nh1 ssh-rsa T0xE\n@revoked h1 x QkFE\n"
    )
    assert record(found(path)) == []
    assert path.read_text() == (
        "# c\n192.0.2.1 ssh-ed25519 T0xE words\nh2 ssh-ed25519 T0xE\n@revoked h1 x QkFE\nh1 ssh-ed25519 TkVX\n"
    )


def test_what_cannot_be_taken_out_is_told(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text("h* ssh-ed25519 T0xE\n")
    assert record(found(path)) == [Known(str(path), 1, "ssh-ed25519", "T0xE", False)]


def test_a_hashed_line_goes(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text("h1 ssh-ed25519 T0xE\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(path)], check=True, timeout=10, capture_output=True)
    assert record(found(path)) == []
    assert path.read_text() == "h1 ssh-ed25519 TkVX\n"


def test_a_revoked_key_is_never_accepted(tmp_path: Path, known: Path, server: Sshd, capsys: Captured) -> None:
    known.parent.mkdir()
    known.write_text(f"@revoked {line(server)}")
    assert trust.run(one(tmp_path, known, server), yes=True, accept=[own(server)[1]]) == 3
    assert "n1: THIS HOST KEY IS REVOKED" in capsys.readouterr().out
    assert known.read_text() == f"@revoked {line(server)}"


def test_a_folder_that_cannot_be_written(tmp_path: Path, server: Sshd) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FleetError, match="the key cannot be written"):
        trust.run(one(tmp_path, tmp_path / "file" / "known_hosts", server), yes=True)

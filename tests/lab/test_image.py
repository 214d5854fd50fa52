"""The doubles' image on real engines: loaded on one node, served between three, the cable cut in between."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fleet.lab.image import ATOM_TAGS, TAGS, BuiltImage, build, ensure

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]
lab_module = pytest.importorskip("fleet.lab.lab", reason="the lab is not part of this tree")

DEADLINE = 30.0
NODES = ("node1", "node2", "node3")
SERVED = ("--volume", "/tmp:/models/M:ro", "--env", "FLEET_DOUBLE_TRANSFER_SECONDS=2")
ASK_PREFILL = {"do_remote_decode": True}


@pytest.fixture(scope="module")
def lab() -> Iterator[Any]:
    made = lab_module.Lab()
    made.up()
    yield made
    for node in NODES:
        made.heal(node)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, lab: Any) -> BuiltImage:
    built = build(tmp_path_factory.mktemp("image"))
    for node in NODES:
        ensure(lab, node, built)
    return built


def run(lab: Any, node: str, *argv: str, flags: tuple[str, ...] = ("--rm",)) -> Any:
    words = ["run", *flags, "--network", "host", "--init", ATOM_TAGS[1], *argv]
    return lab.docker(node, words, timeout=60.0)


class Service:
    """A container that serves HTTP on a node."""

    def __init__(self, lab: Any, node: str, port: int, *argv: str) -> None:
        self.lab, self.node, self.name = lab, node, f"double-{uuid.uuid4().hex[:8]}"
        self.url = f"http://{lab.address(node)}:{port}"
        started = run(lab, node, *argv, flags=("--detach", "--name", self.name, *SERVED))
        assert started.returncode == 0, started.err

    def logs(self) -> str:
        done = self.lab.docker(self.node, ["logs", self.name])
        return str(done.out + done.err)

    def ask(self, path: str, body: Any = None) -> tuple[int, str]:
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data), timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not true():
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.1)

    def remove(self) -> None:
        self.lab.docker(self.node, ["rm", "--force", self.name])


def server(lab: Any, node: str, port: int, role: str, *argv: str) -> Service:
    kv = json.dumps({"kv_connector": "mooncake", "kv_role": f"kv_{role}", "handshake_port": 6301})
    words = ["python3", "-m", "atom.entrypoints.openai_server", "--model", "/models/M", "--server-port", str(port)]
    return Service(lab, node, port, *words, "-tp", "8", "--kv-transfer-config", kv, *argv)


def test_all_tags_are_one_labelled_image(lab: Any, image: BuiltImage) -> None:
    assert not ensure(lab, "node1", image)
    for tag in TAGS:
        shown = json.loads(lab.docker("node1", ["image", "inspect", tag]).out)[0]
        assert shown["Id"] == image.id
        assert shown["Config"]["Labels"] == {"dev.fleet.double": "1"}


def test_programs_start_by_their_real_names(lab: Any, image: BuiltImage) -> None:
    for argv in (
        ("python3", "-m", "atom.entrypoints.openai_server", "--speculative-config", "{}"),
        ("python3", "-m", "atom.benchmarks.benchmark_serving", "--model", "m", "--temperature", "0"),
        ("/usr/local/bin/atomesh", "launch", "--pd"),
        ("atomesh", "launch", "--nope"),
    ):
        assert run(lab, "node1", *argv).returncode == 2, argv
    shell = run(
        lab, "node1", "/bin/sh", "-c", "find /opt/doubles -name atomesh.py | xargs ls; grep -c root /etc/passwd"
    )
    assert shell.out.split() == ["/opt/doubles/atomesh.py", "1"], shell.err


def test_a_deployment_over_three_nodes_and_a_cut_cable(lab: Any, image: BuiltImage) -> None:
    mtp = ("--method", "mtp", "--num-speculative-tokens", "3")
    services = [
        server(lab, "node1", 8010, "producer", *mtp),
        server(lab, "node2", 8010, "producer", *mtp),
        server(lab, "node3", 8020, "consumer", *mtp),
    ]
    try:
        prefill, other, decode = services
        words = ["atomesh", "launch", "--pd-disaggregation", "--backend", "atom", "--policy", "round_robin"]
        words += ["--prefill", prefill.url, "none", "--prefill", other.url, "none", "--decode", decode.url]
        router = Service(lab, "node1", 30000, *words, "--prometheus-port", "29100", "--retry-max-retries", "0")
        services.append(router)
        router.until(lambda: router.ask("/readiness")[0] == 200)
        assert json.loads(router.ask("/readiness")[1])["healthy_workers"] == 3

        client = ("python3", "-m", "atom.benchmarks.benchmark_serving", "--base-url", router.url, "--backend", "openai")
        load = (
            "--model",
            "/models/M",
            "--dataset-name",
            "random",
            "--random-input-len",
            "64",
            "--random-output-len",
            "8",
        )
        shape = ("--num-prompts", "16", "--max-concurrency", "8", "--ignore-eos", "--use-chat-template")
        done = run(lab, "node2", *client, *load, *shape)
        assert done.returncode == 0, done.err
        assert "Successful requests:                     16" in done.out

        _, text = other.ask("/v1/completions", {"prompt": "a", "max_tokens": 1, "kv_transfer_params": ASK_PREFILL})
        params = json.loads(text)["kv_transfer_params"]
        assert params["remote_host"] == lab.address("node2")
        lab.fault("cut", "node2")
        status, _ = decode.ask("/v1/completions", {"prompt": "a", "max_tokens": 2, "kv_transfer_params": params})
        lab.heal("node2")
        assert status == 500
        assert f"from {lab.address('node2')}:6301" in decode.logs()
        assert "[CONSUMER] transfer failed for req" in decode.logs()
        assert {router.ask("/v1/completions", {"prompt": "a", "max_tokens": 2})[0] for _ in range(4)} == {200}
    finally:
        for service in services:
            service.remove()

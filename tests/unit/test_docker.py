from __future__ import annotations

import json

from fleet import docker
from fleet.engines import atom
from fleet.loads import atom_bench
from fleet.model.inventory import Fabric, Host
from fleet.model.service import Service
from tests import build

LABELS = docker.Labels(run="20261130-2104-7f3a9c", owner="ops@bastion", plan="7f3a9c", arm="2p1d-dpa-mtp3")


def prefill() -> Service:
    placed = build.placement()
    return atom.service(placed.seats[0], placed, build.OPTIONS)


def client() -> Service:
    return atom_bench.service(build.point(), build.placement(), endpoint="http://10.1.0.11:30000")


def pairs(argv: list[str], flag: str) -> list[str]:
    return [argv[i + 1] for i, word in enumerate(argv) if word == flag]


def test_a_server_on_rocm():
    service, host = prefill(), build.host(1)
    argv = docker.run_argv(service, host, LABELS)
    assert argv == [
        *("docker", "run", "-d", "--name", "fleet-7f3a9c-prefill0", "--pull", "never"),
        *("--network", "host", "--ipc", "host", "--init", "--stop-timeout", "60"),
        *("--log-driver", "json-file", "--log-opt", "max-size=256m", "--log-opt", "max-file=4"),
        *("--ulimit", "memlock=-1", "--ulimit", "stack=67108864", "--ulimit", "nofile=1048576", "--shm-size", "128g"),
        *("--device", "/dev/kfd", "--device", "/dev/dri", "--device", "/dev/infiniband", "--group-add", "video"),
        *("--cap-add", "SYS_PTRACE", "--security-opt", "seccomp=unconfined"),
        *("--mount", "type=bind,source=/it-share/models,target=/models,readonly"),
        *("--mount", "type=bind,source=/var/tmp/fleet/20261130-2104-7f3a9c,target=/fleet"),
        *("--env", "AITER_BF16_FP8_MOE_BOUND=0", "--env", "ATOM_CPU_AFFINITY=1", "--env", "ATOM_HOST_IP=10.1.0.11"),
        *("--env", "ATOM_MOE_GU_ITLV=1", "--env", "GPU_MAX_HW_QUEUES=5", "--env", "PYTHONUNBUFFERED=1"),
        *("--label", "dev.fleet.run=20261130-2104-7f3a9c", "--label", "dev.fleet.owner=ops@bastion"),
        *("--label", "dev.fleet.plan=7f3a9c", "--label", "dev.fleet.arm=2p1d-dpa-mtp3"),
        *("--label", "dev.fleet.role=prefill", "--label", "dev.fleet.rank=0"),
        *("--label", f"dev.fleet.spec={docker.spec_hash(service, host)}"),
        *("--entrypoint", "python3", "rocm/atom-dev:nightly_202607201550"),
        *service.argv[1:],
    ]


def test_it_is_kept_never_restarted_and_not_privileged():
    argv = docker.run_argv(prefill(), build.host(1), LABELS)
    assert not {"--rm", "--restart", "--privileged"} & set(argv)
    assert "--privileged" in docker.run_argv(prefill(), build.host(1, privileged=True), LABELS)


def test_devices_follow_the_accelerator():
    plain = docker.run_argv(prefill(), build.host(1, fabric=Fabric()), LABELS)
    assert pairs(plain, "--device") == ["/dev/kfd", "/dev/dri"]
    none = docker.run_argv(prefill(), build.host(1, accelerator="none"), LABELS)
    assert pairs(none, "--device") == []
    assert "--group-add" not in none
    cuda = docker.run_argv(prefill(), build.host(1, accelerator="cuda"), LABELS)
    assert pairs(cuda, "--gpus") == ["all"]
    more = docker.run_argv(prefill(), build.host(1, accelerator="cuda", gpus=16), LABELS)
    assert pairs(more, "--gpus") == ['"device=0,1,2,3,4,5,6,7"']


def test_a_client_gets_no_devices_and_a_name_with_its_point():
    argv = docker.run_argv(client(), build.host(1), LABELS.model_copy(update={"point": "2p1d-dpa-mtp3-c256"}))
    assert pairs(argv, "--device") == []
    assert pairs(argv, "--name") == ["fleet-7f3a9c-client-2p1d-dpa-mtp3-c256"]
    assert "dev.fleet.point=2p1d-dpa-mtp3-c256" in argv


def test_what_the_inventory_adds():
    host = build.host(
        1,
        env={"MORI_RDMA_TC": "104"},
        devices=("/dev/extra",),
        mounts=("/usr/lib/libionic.so:/usr/lib/libionic.so:ro",),
    )
    argv = docker.run_argv(prefill(), host, LABELS)
    assert "MORI_RDMA_TC=104" in pairs(argv, "--env")
    assert "/dev/extra" in pairs(argv, "--device")
    assert pairs(argv, "--volume") == ["/usr/lib/libionic.so:/usr/lib/libionic.so:ro"]


def test_the_spec_hash_knows_the_service_and_not_the_run():
    host = build.host(1)
    labels = LABELS.model_copy(update={"run": "other", "owner": "else"})
    assert LABELS.of(prefill(), host)["dev.fleet.spec"] == labels.of(prefill(), host)["dev.fleet.spec"]
    assert docker.spec_hash(prefill(), host) != docker.spec_hash(client(), host)
    assert docker.spec_hash(prefill(), build.host(1, user="else", port=2222)) == docker.spec_hash(prefill(), host)
    assert docker.spec_hash(prefill(), build.host(1, env={"A": "1"})) != docker.spec_hash(prefill(), host)


PS = json.dumps(
    {
        "ID": "f" * 64,
        "Names": "fleet-7f3a9c-prefill0",
        "Image": "rocm/atom-dev:x",
        "State": "exited",
        "Status": "Exited (137) 4 minutes ago",
        "Labels": "dev.fleet.run=r1,dev.fleet.role=prefill,maintainer=AMD",
    }
)


def test_ps():
    assert docker.ps_argv("dev.fleet.run=r1") == [
        *("docker", "ps", "-a", "--no-trunc", "--filter", "label=dev.fleet.run=r1", "--format", "{{json .}}")
    ]
    stranger = json.dumps(
        {"ID": "e", "Names": "db", "Image": "postgres", "Status": "Up 2 days", "Labels": "dev.fleet.double=1"}
    )
    ours, theirs = docker.parse_ps(f"{PS}\n{stranger}\n")
    assert ours.labels == {"run": "r1", "role": "prefill"}
    assert ours.ours
    assert ours.state == "exited"
    assert not theirs.ours
    assert theirs.state == "running"
    assert docker.parse_ps("") == []


INSPECT = [
    {
        "Id": "f" * 64,
        "Name": "/fleet-7f3a9c-decode0",
        "Image": "sha256:a41f",
        "State": {
            "Status": "exited",
            "Running": False,
            "ExitCode": 137,
            "OOMKilled": True,
            "Error": "",
            "StartedAt": "2026-11-30T21:10:00.123456789Z",
            "FinishedAt": "2026-11-30T21:14:07.31Z",
        },
        "Config": {"Labels": {"dev.fleet.rank": "0", "other": "x"}},
    }
]


def test_inspect():
    (state,) = docker.parse_inspect(json.dumps(INSPECT))
    assert state.name == "fleet-7f3a9c-decode0"
    assert state.cause == "exit 137: killed, out of memory"
    assert state.labels == {"rank": "0"}
    started, finished = docker.when(state.started), docker.when(state.finished)
    assert started
    assert finished
    assert (finished - started).total_seconds() == 247.186544
    assert docker.when("0001-01-01T00:00:00Z") is None


def test_causes_in_words():
    (state,) = docker.parse_inspect(json.dumps(INSPECT))
    plain = state.model_copy(update={"oom_killed": False})
    assert plain.cause == "exit 137: killed"
    assert plain.model_copy(update={"exit_code": 0}).cause == "exit 0: ended"
    assert plain.model_copy(update={"exit_code": 3}).cause == "exit 3: failed"


def test_image():
    row = {
        "Id": "sha256:a41f",
        "RepoTags": ["rocm/atom-dev:x"],
        "RepoDigests": ["rocm/atom-dev@sha256:beef"],
        "Size": 37_000_000,
        "RootFS": {"Layers": ["sha256:1", "sha256:2"]},
        "Config": {"Labels": {"dev.fleet.double": "1"}},
    }
    (image,) = docker.parse_image(json.dumps([row]))
    assert image.digest == "sha256:beef"
    assert image.layers == ("sha256:1", "sha256:2")
    assert image.double
    (bare,) = docker.parse_image(json.dumps([{"Id": "sha256:1", "Config": {"Labels": None}}]))
    assert bare.digest is None
    assert not bare.double
    assert docker.parse_image("[]\n") == []


def test_images_and_version():
    rows = [{"Repository": "a", "Tag": "1", "ID": "sha256:1"}, {"Repository": "<none>", "Tag": "<none>", "ID": "x"}]
    assert docker.parse_images("\n".join(map(json.dumps, rows))) == {"a:1": "sha256:1"}
    assert docker.parse_version('{"Client":{"Version":"28.2.2"},"Server":{"Version":"20.10.24"}}') == (
        "28.2.2",
        "20.10.24",
    )
    assert docker.parse_version('{"Client":{"Version":"28.2.2"},"Server":null}') == ("28.2.2", "")


def test_logs():
    assert docker.logs_argv("x", since="2026-11-30T21:10:00Z", follow=True, tail=5) == [
        *("docker", "logs", "--timestamps", "--since", "2026-11-30T21:10:00Z", "--follow", "--tail", "5", "x")
    ]


def test_environment_is_the_services_over_the_hosts():
    assert isinstance(build.host(1), Host)
    assert docker.environment(client(), build.host(1, env={"A": "1"})) == {"A": "1", "PYTHONUNBUFFERED": "1"}


def test_starts_and_deaths() -> None:
    argv = docker.events_argv("r1", 1796108061.5, 1796108066.5)
    assert " ".join(argv) == (
        "docker events --filter type=container --filter label=dev.fleet.run=r1 --filter event=start --filter event=die "
        "--since 1796108061.500000 --until 1796108066.500000 --format {{json .}}"
    )
    facts = {"dev.fleet.role": "decode", "dev.fleet.run": "r1", "image": "i:1", "name": "fleet-1"}
    rows = [
        {"Type": "container", "Action": action, "Actor": {"ID": "4c2", "Attributes": facts | more}, "timeNano": nano}
        for action, more, nano in (
            ("start", {}, 1796108068061625530),
            ("die", {"exitCode": "137"}, 1796108069174255884),
        )
    ]
    start, die = docker.parse_events("\n".join(map(json.dumps, rows)) + "\n")
    assert (start.code, die.code) == (None, 137)
    assert (start.container.state, die.container.state) == ("running", "exited")
    assert die.container.labels == {"role": "decode", "run": "r1"}
    assert (die.container.id, die.container.name, round(die.time, 3)) == ("4c2", "fleet-1", 1796108069.174)
    assert docker.parse_events("") == []

"""compose.yaml and ops/: what they set is a setting, what they start is a command, what they name exists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
import yaml

from weft.cli.main import COMMANDS
from weft.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parent.parent.parent
OPS = ROOT / "ops"
KUBERNETES = OPS / "kubernetes"
SECRETS = {
    "database-url": "postgresql://weft:secret@database/weft",
    "redis-url": "redis://redis:6379/0",
    "api-keys": "one,another",
}
ROLES = ("api", "orchestrator", "worker")


def filled(value: str) -> str:
    """Put in what compose would take from the shell: ``${NAME:-default}`` and ``${NAME:?message}``."""
    return re.sub(
        r"\$\{(?P<name>\w+):(?P<kind>[-?])(?P<rest>[^}]*)\}",
        lambda match: match["rest"] if match["kind"] == "-" else "given",
        value,
    )


def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    return read


def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (document["kind"], document.get("metadata", {}).get("name", "")): document
        for path in sorted(KUBERNETES.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    }


def containers() -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Every container of weft: where it is written, its arguments, its environment."""
    for name, service in compose()["services"].items():
        if service["image"] == "weft":
            environment = {key: filled(value) for key, value in service["environment"].items()}
            yield f"compose.yaml: {name}", service["command"], environment
    every = manifests()
    shared = every["ConfigMap", "weft"]["data"]
    for (kind, name), document in every.items():
        if kind in ("Deployment", "Job"):
            for container in document["spec"]["template"]["spec"]["containers"]:
                own = {item["name"]: item["value"] for item in container.get("env", [])}
                yield f"kubernetes: {name}", container["args"], {**shared, **own}


CONTAINERS = {name: (arguments, environment) for name, arguments, environment in containers()}


def test_there_is_one_of_every_role_in_both() -> None:
    commands = {(name.partition(":")[0], arguments[0]) for name, (arguments, _) in CONTAINERS.items()}
    assert commands == {
        (place, command) for place in ("compose.yaml", "kubernetes") for command in (*ROLES, "migrate")
    }


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_name_is_a_setting_and_every_value_is_good(name: str, tmp_path: Path) -> None:
    arguments, environment = CONTAINERS[name]
    settings, warnings = read_settings(environ=with_secrets(environment, tmp_path), folder=tmp_path)
    assert warnings == []
    assert settings.database_url is not None
    assert settings.redis_url is not None
    # What listens beyond its own container needs a key: the API, and health where Kubernetes asks for it.
    assert bool(settings.api_keys) == (arguments[0] in ("api", "orchestrator"))
    assert (settings.metrics_port is not None) == (arguments[0] in ("orchestrator", "worker"))


def with_secrets(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Let what is read from a mounted secret be read from a file of the same name here."""
    read = dict(environment)
    for key, value in environment.items():
        if key.endswith("_FILE"):
            assert value.startswith("/run/secrets/weft/")
            file = folder / Path(value).name
            file.write_text(SECRETS[file.name])
            read[key] = str(file)
    return read


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_container_starts_a_command_of_weft(name: str) -> None:
    arguments, _ = CONTAINERS[name]
    assert arguments[0] in {command.name for command in COMMANDS}


def test_every_name_of_weft_that_is_written_in_them_is_a_setting() -> None:
    written = {
        name
        for path in [ROOT / "compose.yaml", *OPS.rglob("*")]
        if path.is_file()
        for name in re.findall(r"WEFT_[A-Z0-9_]+", path.read_text(encoding="utf-8"))
    }
    known = {name.removesuffix("_FILE") for name in written}
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    others = {"WEFT_URL", "WEFT_API_KEY"}
    assert {name for name in known - others if f"| `{name.removeprefix('WEFT_')}` |" not in page} == set()


@pytest.mark.parametrize("role", ROLES)
def test_kubernetes_asks_for_health_where_it_is_answered(role: str) -> None:
    pod = manifests()["Deployment", f"weft-{role}"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    arguments, environment = CONTAINERS[f"kubernetes: weft-{role}"]
    answered = arguments[arguments.index("--port") + 1] if role == "api" else environment["WEFT_METRICS_PORT"]
    for probe, path in {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}.items():
        if role == "worker":
            assert f"http://127.0.0.1:{answered}{path}" in container[f"{probe}Probe"]["exec"]["command"][-1]
            continue
        asked = container[f"{probe}Probe"]["httpGet"]
        assert (asked["path"], str(ports[asked["port"]])) == (path, answered)


def test_a_worker_has_no_keys_of_the_api_and_no_token_of_the_cluster() -> None:
    pod = manifests()["Deployment", "weft-worker"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    mounted = [item["key"] for volume in pod["volumes"] for item in volume.get("secret", {}).get("items", [])]
    assert mounted == ["database-url", "redis-url"]
    assert all("items" in volume["secret"] for volume in pod["volumes"] if "secret" in volume)
    _, environment = CONTAINERS["kubernetes: weft-worker"]
    assert not any("API_KEY" in name for name in environment)


def test_what_the_manifests_name_exists() -> None:
    every = manifests()
    for name in every["Kustomization", ""]["resources"]:
        assert (KUBERNETES / name).is_file()
    mentioned = (KUBERNETES / "kustomization.yaml").read_text(encoding="utf-8")
    assert all(f"--from-literal={name}=" in mentioned for name in SECRETS)
    labels = every["Service", "weft-api"]["spec"]["selector"]
    assert labels == every["Deployment", "weft-api"]["spec"]["template"]["metadata"]["labels"]
    services = compose()["services"]
    assert {
        need for service in services.values() for need in service.get("depends_on", {})
    } <= services.keys()
    assert (ROOT / services["api"]["build"]["dockerfile"]).is_file()


def test_the_image_is_built_of_files_that_are_let_in() -> None:
    lines = (OPS / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY") and "--from" not in line]
    ignored = (OPS / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for source in (source for sources in copies for source in sources):
        assert (ROOT / source).exists()
        assert f"!{source}" in ignored


def test_redis_keeps_what_it_was_given_and_evicts_nothing() -> None:
    command = compose()["services"]["redis"]["command"]
    assert command[command.index("--appendonly") + 1] == "yes"
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"


def test_no_password_has_a_default() -> None:
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    assert "PASSWORD:-" not in text
    services = compose()["services"]
    command = services["redis"]["command"]
    assert command[command.index("--requirepass") + 1].startswith("${REDIS_PASSWORD:?")
    assert services["postgres"]["environment"]["POSTGRES_PASSWORD"].startswith("${POSTGRES_PASSWORD:?")
    for name in ("api", "orchestrator", "worker", "migrate"):
        assert "${REDIS_PASSWORD:?" in services[name]["environment"]["WEFT_REDIS_URL"]


def test_every_container_of_compose_is_confined() -> None:
    for name, service in compose()["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        # The servers' images start as root otherwise; weft's has a user of its own.
        assert "user" in service or service["image"] == "weft", name
        # Nothing but the API and the dashboards is reached from outside, and they from this machine alone.
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert not service.get("ports") or name in ("api", "grafana")


def test_compose_keeps_to_the_schema_of_the_specification() -> None:
    schema = json.loads((ROOT / "tests/support/compose-spec/compose-spec.json").read_text(encoding="utf-8"))
    validator = jsonschema_rs.validator_for(schema)
    assert [f"{error.instance_path}: {error.message}" for error in validator.iter_errors(compose())] == []
    wrong = compose()
    wrong["services"]["grafana"]["profile"] = ["observability"]
    assert not validator.is_valid(wrong)


def test_the_profile_adds_two_services_and_asks_nothing_of_those_who_leave_it_out() -> None:
    read = compose()
    services = read["services"]
    added = {name for name, service in services.items() if "profiles" in service}
    assert added == {"prometheus", "grafana"}
    assert {profile for name in added for profile in services[name]["profiles"]} == {"observability"}
    # Names with `:?` are asked of everybody, so that these two take theirs as secrets.
    text = json.dumps([services[name] for name in sorted(added)])
    assert "${" not in text
    for name, service in services.items():
        assert name in added or not added & {*service.get("depends_on", {})}
        assert {*service.get("secrets", [])} <= read["secrets"].keys()
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert (ROOT / source).is_dir() if source.startswith("./") else source in read["volumes"], volume


@pytest.mark.parametrize("name", [name for kind, name in manifests() if kind in ("Deployment", "Job")])
def test_every_pod_is_confined(name: str) -> None:
    every = manifests()
    pod = next(every[kind, name] for kind in ("Deployment", "Job") if (kind, name) in every)["spec"]
    spec = pod["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_network_policies_close_every_pod_and_open_what_it_needs() -> None:
    every = manifests()
    policies = {name: document["spec"] for (kind, name), document in every.items() if kind == "NetworkPolicy"}
    closed = policies.pop("weft")
    labels = closed["podSelector"]["matchLabels"]
    assert closed["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in closed
    for (kind, _), document in every.items():
        if kind in ("Deployment", "Job"):
            assert labels.items() <= document["spec"]["template"]["metadata"]["labels"].items()
    # By the names that the containers give their ports.
    assert policies["weft-api"]["ingress"][0]["ports"] == [{"port": "http", "protocol": "TCP"}]
    assert policies["weft-metrics"]["ingress"][0]["ports"] == [{"port": "metrics", "protocol": "TCP"}]
    (outside,) = policies["weft-worker"]["egress"]
    assert "169.254.0.0/16" in outside["to"][0]["ipBlock"]["except"]


def test_the_unit_of_systemd_runs_as_a_user_of_its_own_and_may_write_its_folder_alone() -> None:
    lines = (OPS / "systemd" / "weft.service").read_text(encoding="utf-8").splitlines()
    fields = dict(
        line.split("=", 1) for line in lines if "=" in line and not line.startswith(("#", "Environment"))
    )
    assert fields["User"] not in ("", "root", "0")
    assert fields["ExecStart"].split()[1] in {command.name for command in COMMANDS}
    assert fields["ExecStart"].endswith(f"--data /var/lib/{fields['StateDirectory']}")
    for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictSUIDSGID"):
        assert fields[name] == "yes", name
    assert (fields["ProtectSystem"], fields["CapabilityBoundingSet"]) == ("strict", "")
    assert fields["StateDirectoryMode"] == "0700"
    shown = (ROOT / "docs" / "operation.md").read_text(encoding="utf-8")
    block = shown.partition("```ini\n")[2].partition("```")[0].splitlines()
    assert set(block) <= set(lines)


def test_the_threat_model_is_linked_and_names_what_exists() -> None:
    assert "(SECURITY.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "All API keys are one administrator" in text
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert (ROOT / target).exists(), target

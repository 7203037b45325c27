"""ops/grafana and ops/prometheus: what they read is what a server shows, and each alert says what to do."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.operation.promql import Expression
from tests.operation.serving import ROOT, serving

from paperwork import database, exposition
from weft.telemetry import HISTOGRAM, METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

OPS = ROOT / "ops"
DASHBOARDS = sorted((OPS / "grafana" / "dashboards").glob("*.json"))
RULES = sorted((OPS / "prometheus" / "rules").glob("*.yml"))
PAGE = ROOT / "docs" / "monitoring.md"
# What Prometheus adds to every series.
TARGET = {"job", "instance"}
VARIABLE = re.compile(r"\$(?!__)(\w+)|\$\{(\w+)\}")


@dataclass
class Known:
    """The series that can be read: the labels of each, and the values that were seen of them."""

    labels: dict[str, set[str]] = field(default_factory=dict)
    values: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    def add(self, text: str, labels: Mapping[str, tuple[str, ...]]) -> None:
        """Add what a page of metrics declares; ``labels`` of metrics that may have no sample yet."""
        for family in text_string_to_metric_families(text):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            of_metric = {*labels.get(name, ())}
            of_metric |= {label for sample in family.samples for label in sample.labels} - {"le"}
            if family.type == "histogram":
                self.labels[f"{name}_bucket"] = of_metric | {"le"}
                self.labels[f"{name}_sum"] = self.labels[f"{name}_count"] = of_metric
            else:
                self.labels[name] = of_metric
            for sample in family.samples:
                for label, value in sample.labels.items():
                    self.values.setdefault((sample.name, label), set()).add(value)


GOOD = {"id": "greet", "handler": "echo", "config": "hello"}
BAD = {"id": "fail", "handler": "echo", "config": "{{ input.that_nobody_gave }}"}


async def metrics_of_a_server(data: Path) -> str:
    """Return the metrics that a server shows after one good and one bad execution."""
    async with serving(data) as (_, api):
        for node, state in ((GOOD, "COMPLETED"), (BAD, "FAILED")):
            assert (await api.terminal(await api.start({"nodes": [node]})))["state"] == state
        async with aiohttp.ClientSession() as session, session.get(f"{api.url}/metrics") as response:
            return await response.text()


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Known:
    """Return what a server and the document pipeline show."""
    folder = tmp_path_factory.mktemp("known")
    known = Known(labels={"up": set()})
    text = asyncio.run(metrics_of_a_server(folder / "data"))
    known.add(text, {metric.name: metric.labels for metric in METRICS})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCUMENTS_DATABASE_URL", f"sqlite:///{folder / 'documents.db'}")
        known.add(exposition.as_text().decode(), {})
        database.close()
    return known


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", [])


def read_board(path: Path) -> dict[str, Any]:
    board: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return board


def alerts() -> Iterator[dict[str, Any]]:
    for path in RULES:
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            yield from group["rules"]


ALERTS = {alert["alert"]: alert for alert in alerts()}


def queries() -> Iterator[tuple[str, str, str]]:
    """Every expression: where it is, its text, and the legend or summary that names labels of it."""
    for path in DASHBOARDS:
        for panel in panels(read_board(path)):
            for target in panel.get("targets", []):
                yield f"{path.name}: {panel['title']}", target["expr"], target["legendFormat"]
    for name, alert in ALERTS.items():
        yield name, alert["expr"], alert["annotations"]["summary"]


def test_there_are_dashboards_and_alerts() -> None:
    assert {path.stem for path in DASHBOARDS} == {"fleet", "workflow", "documents"}
    assert len(ALERTS) == sum(1 for _ in alerts())
    assert len(list(queries())) > 60


def test_every_metric_that_is_read_exists_with_these_labels(known: Known) -> None:
    for place_, text, legend in queries():
        expression = Expression(text)
        assert expression.selectors, place_
        shown: set[str] = set()
        for selector in expression.selectors:
            assert selector.metric in known.labels, f"{place_}: no server shows {selector.metric}"
            labels = known.labels[selector.metric] | TARGET
            shown |= labels
            for label, sign, value in selector.matchers:
                assert label in labels, f"{place_}: {selector.metric} has no label {label}"
                if sign == "=" and label in ("state", "status"):
                    values = known.values[selector.metric, label]
                    assert value in values, f"{place_}: {selector.metric} has no {label}={value}"
        for grouping in expression.groupings:
            for selector in grouping.selectors:
                missing = {*grouping.labels} - known.labels[selector.metric] - TARGET
                assert not missing, f"{place_}: {selector.metric} has no label {missing}"
        named = set(re.findall(r"\{\{\s*\$?(?:labels\.)?([a-z_]+)", legend)) - {"value"}
        assert named <= shown, f"{place_}: the legend names {named - shown}"
        # What is added up over labels keeps those that its legend names.
        kept = {label for grouping in expression.groupings for label in grouping.labels}
        assert named <= kept or not expression.groupings, f"{place_}: {named - kept} is added up"


def test_every_kind_of_metric_is_on_a_dashboard(known: Known) -> None:
    shown = {
        selector.metric
        for path in DASHBOARDS
        for panel in panels(read_board(path))
        for target in panel.get("targets", [])
        for selector in Expression(target["expr"]).selectors
    }
    suffixes = ("_bucket", "_sum", "_count")
    missing = {
        metric.name
        for metric in METRICS
        if not shown & ({metric.name + s for s in suffixes} if metric.kind is HISTOGRAM else {metric.name})
    }
    assert missing == set()


@pytest.mark.parametrize(
    "text",
    [
        "sum(rate(a[5m])",
        "sum(rate(a))",
        "histogram_quantile(0.5, a[5m])",
        "sum by (a) a",
        "a{b}",
        'a{b="c"',
        "a b",
        "avg_of(a)",
        "a > ",
        "rate(a[5])",
    ],
)
def test_what_is_no_promql_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Expression(text)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_can_be_imported_as_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    board = json.loads(text)
    assert board["uid"] == f"weft-{path.stem}"
    assert "id" not in board, "Grafana gives it"
    assert board["title"]
    assert board["schemaVersion"] >= 36
    assert not re.search(r"https?://", text), "no address of one installation"
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    assert {name for match in VARIABLE.findall(text) for name in match if name} <= variables.keys()
    every = list(panels(board))
    ids = [panel["id"] for panel in every]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in every:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells
        assert panel["title"]
        if panel["type"] == "row":
            continue
        assert panel["type"] in ("timeseries", "stat", "bargauge", "heatmap")
        own = {"type": "prometheus", "uid": "${datasource}"}
        assert all(part["datasource"] == own for part in (panel, *panel["targets"]))
        unit = panel["fieldConfig"]["defaults"].get("unit") or panel["options"]["yAxis"]["unit"]
        assert unit in ("short", "s", "cps", "reqps", "bytes", "percentunit")
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert all('job=~"$job"' in target["expr"] for target in panel["targets"])


def test_the_lists_of_a_dashboard_are_labels_that_exist(known: Known) -> None:
    for path in DASHBOARDS:
        for variable in read_board(path)["templating"]["list"]:
            if variable["type"] != "query":
                continue
            match = re.fullmatch(
                r"label_values\((?P<series>.+), (?P<label>\w+)\)", variable["query"]["query"]
            )
            assert match, variable["query"]
            (selector,) = Expression(match["series"]).selectors
            assert match["label"] in known.labels[selector.metric] | TARGET


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_is_wrong_and_where_to_read_what_to_do(name: str) -> None:
    alert = ALERTS[name]
    assert {"alert", "expr", "labels", "annotations"} <= alert.keys()
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert re.fullmatch(r"\d+[mh]", alert.get("for", "0m"))
    file, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    assert ROOT / file == PAGE
    assert anchor == name.lower()
    text = PAGE.read_text(encoding="utf-8")
    _, found, behind = text.partition(f"\n### {name}\n")
    assert found, f"docs/monitoring.md has no paragraph on {name}"
    paragraph = behind.partition("\n### ")[0].partition("\n## ")[0].strip()
    assert len(paragraph.split()) >= 20, f"{name}: that is no help"


def test_the_page_tells_of_no_alert_that_is_not_there() -> None:
    told = re.findall(r"^### ((?:Weft|Documents)\w+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert told == list(dict.fromkeys(told))
    assert set(told) == set(ALERTS)


def test_prometheus_reads_these_rules_and_scrapes_what_compose_starts() -> None:
    folder = OPS / "prometheus"
    config = yaml.safe_load((folder / "prometheus.yml").read_text(encoding="utf-8"))
    assert sorted(path for glob in config["rule_files"] for path in folder.glob(glob)) == RULES
    (job,) = config["scrape_configs"]
    assert job["job_name"] == "weft"
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    for found in job["dns_sd_configs"]:
        (name,) = found["names"]
        command, environment = services[name]["command"], services[name]["environment"]
        port = command[command.index("--port") + 1] if name == "api" else environment["WEFT_METRICS_PORT"]
        assert found["port"] == int(port)
        assert "WEFT_API_KEYS" in environment, "without a key it listens to its own container alone"
    secret = job["authorization"]["credentials_file"].removeprefix("/run/secrets/")
    assert secret in services["prometheus"]["secrets"]


def test_grafana_is_provisioned_with_these_dashboards() -> None:
    provisioning = OPS / "grafana" / "provisioning"
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    mounts = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    assert mounts["./ops/grafana/provisioning"] == "/etc/grafana/provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "weft.yaml").read_text())["providers"]
    assert provider["options"]["path"] == mounts["./ops/grafana/dashboards"]
    (source,) = yaml.safe_load((provisioning / "datasources" / "weft.yaml").read_text())["datasources"]
    assert source["type"] == "prometheus"
    assert source["url"].removeprefix("http://").partition(":")[0] in services
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == "/etc/grafana/dashboards/fleet.json"

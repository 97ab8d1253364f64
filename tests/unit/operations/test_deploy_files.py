"""Every metric has a panel or a reason, every query names a metric there is, every alert has a runbook and a test."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from streams import metrics

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
RULES = DEPLOY / "prometheus/rules.yaml"
TESTS = DEPLOY / "prometheus/tests.yaml"
NAME = re.compile(r"\b(?:docdelta|process)_[a-z_]+\b")
HOW_TO = "promtool is missing; it comes with Debian's package `prometheus` (apt-get install prometheus)"


def _generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate_dashboards", DEPLOY / "grafana/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


GENERATE = _generator()
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def _queries() -> list[str]:
    files = [DEPLOY / "grafana" / dashboard.file for dashboard in GENERATE.DASHBOARDS]
    panels = [panel for file in files for panel in json.loads(file.read_text(encoding="utf-8"))["panels"]]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def _exposed() -> dict[str, str]:
    """Return sample name → the name its metric is known by."""
    names = {}
    for family in metrics.REGISTRY.collect():
        known = f"{family.name}_total" if family.type == "counter" else family.name
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
        names |= {f"{family.name}{suffix}": known for suffix in suffixes}
    return names


def test_every_metric_has_a_panel_or_a_reason() -> None:
    shown = {_exposed()[name] for query in _queries() for name in NAME.findall(query)}
    known = set(_exposed().values())
    assert known - shown - GENERATE.NO_PANEL.keys() == set()
    assert GENERATE.NO_PANEL.keys() & shown == set(), "a panel and a reason why there is none"
    assert GENERATE.NO_PANEL.keys() <= known


@pytest.mark.parametrize("expression", [*_queries(), *(rule["expr"] for rule in ALERTS)])
def test_every_query_names_metrics_that_there_are(expression: str) -> None:
    assert NAME.findall(expression) or "up{" in expression
    assert {name for name in NAME.findall(expression) if name not in _exposed()} == set()


def test_the_dashboards_are_as_the_generator_makes_them() -> None:
    assert GENERATE.main(["--check"]) == 0


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    named = {rule["alert"]: DEPLOY.parent / rule["annotations"]["runbook_url"] for rule in ALERTS}
    assert {path.stem: path for path in (DEPLOY / "runbooks").glob("*.md")} == named
    for name, path in named.items():
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {name}\n")
        assert all(f"\n## {part}\n" in text for part in ("What it means", "Look", "Do"))


def test_every_alert_says_the_cause_and_one_action_and_has_a_test() -> None:
    tested = TESTS.read_text()
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"].keys() == {"summary", "action", "runbook_url"}
        assert f'alertname="{rule["alert"]}", alertstate="firing"' in tested, rule["alert"]


def test_commands_and_settings_that_runbooks_name_exist() -> None:
    from streams.cli.main import COMMANDS

    commands = {name for _, name, _ in COMMANDS}
    readme = (DEPLOY.parent / "README.md").read_text(encoding="utf-8")
    for path in (DEPLOY / "runbooks").glob("*.md"):
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"`docdelta ([a-z][a-z-]*)", text)) <= commands, path.name
        for setting in re.findall(r"DOCDELTA_[A-Z_]+", text):
            assert f"`{setting}`" in readme, (path.name, setting)
        assert {name for name in NAME.findall(text) if name not in _exposed()} == set(), path.name


@pytest.mark.parametrize(
    "arguments",
    [["check", "rules", RULES.name], ["test", "rules", TESTS.name], ["check", "config", "prometheus.yaml"]],
    ids=["rules", "tests", "config"],
)
def test_promtool_accepts_the_rules(arguments: list[str]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip(HOW_TO)
    done = subprocess.run([promtool, *arguments], cwd=RULES.parent, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

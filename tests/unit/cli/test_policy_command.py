"""`docdelta policy`: faults by line, costs by name, and the reason of every boundary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streams.cli.main import main

PAGE = (
    "# Depot\n\nIntro of the depot.\n\n## Night\n\n"
    + "Two guards walk the yard every two hours. " * 80
    + "\n\n## Day\n\nOpen at eight.\n"
)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_explain_names_rule_strategy_and_every_boundary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "depot.md"
    page.write_text(PAGE, encoding="utf-8")
    code, out, _ = run(capsys, "policy", "explain", "default", str(page), "--json")
    told = json.loads(out)
    assert code == 0
    assert told["strategy"].startswith("structure/")
    ranks = {chunk["boundary"]: chunk["rank"] for chunk in told["chunks"][1:]}
    assert len(told["chunks"]) > 2
    assert all(ranks), "every boundary has a rule"
    assert max(ranks.values()) > min(ranks.values()), "a heading is a stronger boundary than a sentence end"
    code, out, _ = run(capsys, "policy", "explain", "default", str(page))
    assert code == 0
    assert "→ rule everything" in out


@pytest.mark.parametrize(
    ("lines", "warning"),
    [
        pytest.param("embed: {heading_path: true}", "embed.heading_path", id="costly-heading-path"),
        pytest.param("embed: {title: true}", "embed.title", id="costly-title"),
        pytest.param("identity: strict/1", "identity strict/1", id="costly-identity"),
        pytest.param("rules: [{use: structure}, {use: recursive}]", "never reached", id="unreachable-rule"),
    ],
)
def test_lint_warns_of_what_costs(lines: str, warning: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text(f"name: p\nversion: 1\nembedding: {{max_tokens: 512}}\n{lines}\n", encoding="utf-8")
    code, out, _ = run(capsys, "policy", "lint", str(policy))
    assert code == 1
    assert warning in out


def test_lint_names_line_and_field_of_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text("name: p\nversion: 1\nlimits:\n  max_tokens: many\n", encoding="utf-8")
    code, _, err = run(capsys, "policy", "lint", str(policy))
    assert code == 2
    assert "p.yaml:4: limits.max_tokens" in err


def test_view_shows_all_of_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "depot.md"
    page.write_text(PAGE, encoding="utf-8")
    code, out, _ = run(capsys, "chunk", str(page), "--view")
    assert code == 0
    assert out.count("Two guards walk the yard") == 80
    assert "tokens" in out


def test_an_unknown_strategy_is_named_with_the_line_it_stands_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nversion: 1\nrules:\n  - name: all\n    use: strukture\n", encoding="utf-8")
    code, _, err = run(capsys, "policy", "lint", str(file))
    assert code == 2
    assert "mine.yaml:5: rules.0.use: 'strukture' is unknown; one of" in err

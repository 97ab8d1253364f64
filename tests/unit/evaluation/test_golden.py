"""Golden files: both shapes, and every fault told with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streams.errors import UsageError
from streams.evaluation.golden import Expectation, Golden, load_golden, parse_golden

SAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "sample-site" / "golden.yaml"
YAML = """tenant: demo
questions:
  - question: 病假工资按什么比例发放？
    document: leave
    clause: 第三条
    fragment: 百分之八十
  - question: What is the limit?
    tenant: acme
    groups: [staff]
    expected:
      - {document: limits, heading_path: [Limits, API]}
      - {document: faq, revision: 7, fragment: 600 requests}
"""


def read(text: str) -> Golden:
    return parse_golden(text, "golden.yaml")


def test_one_place_beside_the_question_or_several_under_expected() -> None:
    first, second = read(YAML).questions
    assert (first.tenant, first.line, first.groups) == ("demo", 3, None)
    assert first.expected == (Expectation(document="leave", clause="第三条", fragment="百分之八十"),)
    assert (second.tenant, second.line, second.groups) == ("acme", 7, ("staff",))
    assert second.expected == (
        Expectation(document="limits", heading_path=("Limits", "API")),
        Expectation(document="faq", revision=7, fragment="600 requests"),
    )


def test_the_same_questions_a_line_each_are_the_same(tmp_path: Path) -> None:
    lines = [
        {
            "question": "病假工资按什么比例发放？",
            "tenant": "demo",
            "document": "leave",
            "clause": "第三条",
            "fragment": "百分之八十",
        },
        {
            "question": "What is the limit?",
            "tenant": "acme",
            "groups": ["staff"],
            "expected": [
                {"document": "limits", "heading_path": ["Limits", "API"]},
                {"document": "faq", "revision": 7, "fragment": "600 requests"},
            ],
        },
    ]
    file = tmp_path / "golden.jsonl"
    file.write_text("\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n", encoding="utf-8")
    from_lines = load_golden(file).questions
    assert [each.line for each in from_lines] == [1, 3]
    assert [each.model_copy(update={"line": 0}) for each in from_lines] == [
        each.model_copy(update={"line": 0}) for each in read(YAML).questions
    ]


def test_the_sample_sites_file_is_one() -> None:
    golden = load_golden(SAMPLE)
    assert len(golden.questions) >= 60
    assert {question.tenant for question in golden.questions} == {"demo"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("tenant: [", r"golden.yaml:1: not YAML", id="broken-yaml"),
        pytest.param("- question: a", "a golden file is a mapping", id="a-list"),
        pytest.param("questions: []", "there is no question in it", id="none"),
        pytest.param("questions: [hello]", r"golden.yaml:1: a question is a mapping", id="a-question-that-is-a-word"),
        pytest.param("tenants: demo\nquestions: []", r"golden.yaml:1: tenants: unknown key", id="unknown-key-at-the-top"),
        pytest.param(YAML.replace("clause: 第三条", "claus: 第三条"), r"golden.yaml:5: claus: unknown key", id="unknown-key"),
        pytest.param(YAML.replace("    document: leave\n", ""), r"golden.yaml:3: document: Field required", id="no-document"),
        pytest.param(YAML.replace("tenant: demo\n", ""), r"golden.yaml:2: tenant: String should have at least", id="no-tenant"),
        pytest.param(YAML.replace("百分之八十", "2027"), r"golden.yaml:6: fragment: must be text; put it in quotes", id="a-number"),
        pytest.param(YAML.replace("revision: 7", "revision: -7"), r"golden.yaml:12: expected.1.revision", id="a-negative-revision"),
        pytest.param(
            YAML.replace("    expected:", "    document: x\n    expected:"), r"golden.yaml:10: document: stands beside", id="both"
        ),
        pytest.param("questions: [{question: q, tenant: t, expected: []}]", "expected: name one place", id="no-places"),
        pytest.param(YAML.replace("What is the limit?", '" "'), r"golden.yaml:7: question: the question is blank", id="blank"),
        pytest.param(
            YAML + "  - {question: 病假工资按什么比例发放？, document: other}\n",
            r"golden.yaml:13: question: already asked in line 3",
            id="asked-twice",
        ),
    ],
)
def test_a_fault_is_told_with_its_line(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read(text)


def test_a_fault_in_a_line_of_json_is_told_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "golden.jsonl"
    for line, words in (
        ("{", ":2: not JSON"),
        ("[]", ":2: a line is an object"),
        ('{"question": "q"}', ":2: tenant: Field required"),
    ):
        file.write_text(f'{{"question": "a", "tenant": "t", "document": "d"}}\n{line}\n', encoding="utf-8")
        with pytest.raises(UsageError, match=words):
            load_golden(file)


def test_many_faults_are_told_in_part() -> None:
    lines = "".join(f"  - {{question: q{number}}}\n" for number in range(9))
    with pytest.raises(UsageError, match="and 4 more"):
        read("tenant: t\nquestions:\n" + lines)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.yaml"):
        load_golden(tmp_path / "nowhere.yaml")


def test_the_example_in_the_readme_is_one() -> None:
    text = (SAMPLE.parents[2] / "README.md").read_text(encoding="utf-8")
    example = next(block.split("```")[0] for block in text.split("```yaml\n")[1:] if "questions:" in block)
    assert [len(question.expected) for question in read(example).questions] == [1, 2]

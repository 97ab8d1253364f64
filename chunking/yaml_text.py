"""YAML read as people mean it: a key that stands twice in one mapping is a mistake, not a choice of the last one."""

from __future__ import annotations

from typing import Any

import yaml


class YamlFault(ValueError):
    """The text can't be used. `line` counts from 1; 0 where none can be named."""

    def __init__(self, words: str, line: int = 0) -> None:
        super().__init__(words)
        self.line = line


def read_yaml(text: str) -> tuple[yaml.Node | None, Any]:
    """Return the tree with its lines, and the value. Raises YamlFault: no YAML, a key twice, nested too deeply."""
    try:
        root, value = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise YamlFault(f"not YAML: {getattr(error, 'problem', error)}", mark.line + 1 if mark else 0) from error
    except RecursionError:
        raise YamlFault("nested too deeply") from None
    except ValueError as error:  # a date or a number that does not exist
        raise YamlFault(f"not YAML: {error}") from error
    _refuse_twins(root)
    return root, value


def _refuse_twins(root: yaml.Node | None) -> None:
    waiting, seen = [root] if root is not None else [], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            names = set[tuple[str, str]]()
            for key, value in node.value:
                waiting += (key, value)
                if isinstance(key, yaml.ScalarNode):
                    name = (key.tag, key.value)
                    if name in names:
                        raise YamlFault(f"key {key.value!r} stands twice; keep one", key.start_mark.line + 1)
                    names.add(name)

"""Checks rules of alarms: YAML as Prometheus reads it, PromQL by its parser, metrics and labels that are exported."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import promql_parser as promql
import yaml

from documents.finding import ROOT
from eunomia import GpuState, Reason, Stage

RULE_KEYS: Final = frozenset({"alert", "expr", "for", "labels", "annotations"})
VALUES: Final[Mapping[str, frozenset[str]]] = {
    "reason": frozenset(reason.word for reason in Reason),
    "stage": frozenset([*(stage.name.lower() for stage in Stage), "offer"]),
}
"""By label, the values that it has on any metric."""
SLOT_STATES: Final = frozenset(state.name.lower() for state in GpuState)
_DURATION: Final = re.compile(r"\d+[smhd]")
_ROW: Final = re.compile(r"^\| `(eunomia_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)


def labels_of_metrics() -> dict[str, frozenset[str]]:
    """The exported names with their labels, by the reference, which another test compares with the code."""
    page = (ROOT / "docs" / "reference" / "prometheus.md").read_text(encoding="utf-8")
    found: dict[str, frozenset[str]] = {}
    for name, kind, labels in _ROW.findall(page):
        own = frozenset(re.findall(r"`(\w+)`", labels))
        if kind == "histogram":
            found |= {f"{name}_bucket": own | {"le"}, f"{name}_sum": own, f"{name}_count": own}
        else:
            found[name] = own
    return found


def check_rules(text: str) -> int:
    """Check a file of rules, and return how many there are.

    Raises:
        ValueError: it is no such file, or an expression, a metric, a label or a value is wrong.
    """
    tree = yaml.safe_load(text)
    if not isinstance(tree, Mapping) or set(tree) != {"groups"}:
        raise ValueError(f"a file of rules must have groups alone, but got {tree!r}")
    rules = [rule for group in tree["groups"] for rule in _rules(group)]
    for rule in rules:
        if not {"alert", "expr"} <= set(rule) <= RULE_KEYS or _DURATION.fullmatch(rule.get("for", "0s")) is None:
            raise ValueError(f"a rule must have an alert and an expr, but got {rule}")
        check_expression(rule["expr"])
    return len(rules)


def _rules(group: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if set(group) != {"name", "rules"}:
        raise ValueError(f"a group must have a name and rules, but got {sorted(group)}")
    rules: list[Mapping[str, Any]] = group["rules"]
    return rules


def check_expression(text: str) -> None:
    """Check an expression: its grammar, and that its metrics and labels are exported.

    Raises:
        ValueError: one of these is wrong.
    """
    known = labels_of_metrics()
    for selector in _selectors(promql.parse(text)):
        if selector.name not in known:
            raise ValueError(f"no metric is exported as {selector.name} ({text})")
        for matcher in selector.matchers.matchers:
            states = SLOT_STATES if selector.name == "eunomia_slots" else frozenset({matcher.value})
            allowed = VALUES.get(matcher.name, states)
            if matcher.name not in known[selector.name] or matcher.value not in allowed:
                raise ValueError(f"{selector.name} has no {matcher.name}={matcher.value} ({text})")


def _selectors(expression: Any) -> Iterator[promql.VectorSelector]:
    if isinstance(expression, promql.VectorSelector):
        yield expression
    for name in ("lhs", "rhs", "expr", "args", "vector_selector"):
        part = getattr(expression, name, None)
        for each in part if isinstance(part, list) else [part]:
            if each is not None:
                yield from _selectors(each)

"""Answers by goal as JSON values, for ``--json``."""

from typing import Any

from eunomia_testbed.evidence.evidence import Evidence
from eunomia_testbed.evidence.intervals import Estimate
from eunomia_testbed.evidence.judging import GoalAnswer, judge, policies_by_load
from eunomia_testbed.results.facts import RunFacts


def answers_json(evidence: Evidence, facts: RunFacts) -> dict[str, Any]:
    """Return the kind of draws, and the answers by load and goal; a load with a single policy has no answers."""
    answers = []
    done = set(evidence.drawn["policy"].to_list()) if evidence.drawn.width else set()
    for load, policies in policies_by_load(facts, done).items():
        if len(policies) < 2:
            continue
        judged = judge(evidence, policies, kind=facts.rho)
        of_rho = [answer for found in judged.fairness.values() for answer in found]
        answers.append(
            {
                "load": load,
                "goals": [_goal(answer) for answer in [*judged.goals, *of_rho]],
                "fairest": {kind: list(best) for kind, best in judged.fairest_by_kind().items()},
                "front": list(judged.front),
                "fronts": {kind: list(front) for kind, front in judged.fronts.items()},
                "unfinished": [each.policy for each in judged.unfinished],
            }
        )
    return {"draws": evidence.draws.to_plain(), "answers": answers}


def _goal(answer: GoalAnswer) -> dict[str, Any]:
    return {
        "goal": answer.goal.name,
        "figure": answer.goal.figure,
        "best": list(answer.best),
        "decided": answer.decided,
        "shows_chance": answer.shows_chance,
        "relative": answer.goal.relative,
        "figures": {policy: _estimate(found) for policy, found in answer.figures.items()},
        "against_best": {policy: _estimate(found) for policy, found in answer.against.items()},
        "more_evidence": answer.factor,
    }


def _estimate(found: Estimate) -> dict[str, float | None]:
    return {"value": found.value, "low": found.low, "high": found.high}

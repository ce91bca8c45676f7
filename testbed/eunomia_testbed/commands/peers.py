"""Round rules of other simulators, by name."""

import importlib
from typing import Final

from eunomia.errors import InputError
from eunomia.words import did_you_mean, shown
from eunomia_testbed.commands.settings import filled
from eunomia_testbed.simulator import Rules

RULES: Final = {"gavel": "eunomia_testbed.simulator.gavel_rules:GavelRules"}


def rules_of(name: str, settings: list[str]) -> Rules:
    """The rules of a peer, with some of them set otherwise.

    Raises:
        InputError: no peer of that name, or a rule that it does not have.
    """
    if name not in RULES:
        rule = f"rules must be one of {', '.join(RULES)}"
        raise InputError(rule, value=f"{shown(name)}{did_you_mean(name, RULES)}", place="--rules")
    module, _, attribute = RULES[name].partition(":")
    made: Rules = filled(getattr(importlib.import_module(module), attribute), settings, "--rule")
    return made

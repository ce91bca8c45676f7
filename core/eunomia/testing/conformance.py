"""The suite that any policy inherits; under plain pytest, without fixtures.

```python
class TestLottery(PolicyConformance):
    plugin = Lottery
```

A failure names the plugin, the rule and what broke it:
``lottery: what a stage is given must stay as it was, but eunomia_allocation changed snapshot.jobs.done (town)``.
"""

from eunomia.testing.suite.declarations import DeclarationTests
from eunomia.testing.suite.repeats import RepeatTests
from eunomia.testing.suite.rounds import RoundTests


class PolicyConformance(DeclarationTests, RoundTests, RepeatTests):
    """The test suite of a policy: inherit the class and set ``plugin``.

    Attributes:
        plugin: the class.
        options: options of the plugin; others have their defaults.
        profile: the other stages, ``{"elasticity": "range", "refiners": ["lottery", "rounding"]}``, and any other
            dotted key of a profile. Stages that are neither named nor implemented by the plugin are those of
            ``default``.
        time_limit: seconds of CPU time after which a run counts as hanging, or ten times as many seconds for
            one that sleeps or waits.
    """

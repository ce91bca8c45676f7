"""The test suite that any policy can inherit; it runs under plain pytest and needs no fixtures.

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
        plugin: the plugin class.
        options: options of the plugin; other options have their defaults.
        profile: the other stages, such as ``{"elasticity": "range", "refiners": ["lottery", "rounding"]}``, and
            values by any other dotted key of a profile. Stages that are neither named nor implemented by the plugin
            are those of the profile ``default``.
        time_limit: seconds of CPU time after which a run counts as hanging, or ten times as many seconds of
            wall-clock time.
    """

from eunomia_lottery import Lottery

from eunomia.testing.conformance import PolicyConformance


class TestLottery(PolicyConformance):
    plugin = Lottery

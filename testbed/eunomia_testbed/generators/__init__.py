"""Draws the workloads of the papers, by name, with options and a seed."""

from eunomia_testbed.generators.afs import AfsOptions
from eunomia_testbed.generators.derived import GavelOptions, SynergyOptions
from eunomia_testbed.generators.identical import IdenticalOptions
from eunomia_testbed.generators.names import (
    GENERATORS,
    Generator,
    describe_generator,
    generate_workload,
    generated_speeds,
    generator_named,
    generator_options,
)
from eunomia_testbed.generators.oef import OefOptions, oef_speeds
from eunomia_testbed.generators.shockwave import ShockwaveOptions
from eunomia_testbed.generators.themis import Themis2Options, ThemisOptions
from eunomia_testbed.generators.themis_facts import themis_speeds

__all__ = [
    "GENERATORS",
    "AfsOptions",
    "GavelOptions",
    "Generator",
    "IdenticalOptions",
    "OefOptions",
    "ShockwaveOptions",
    "SynergyOptions",
    "Themis2Options",
    "ThemisOptions",
    "describe_generator",
    "generate_workload",
    "generated_speeds",
    "generator_named",
    "generator_options",
    "oef_speeds",
    "themis_speeds",
]

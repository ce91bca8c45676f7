"""The analytic model against Themis' Table 1 and its own formula; declared speeds with Themis' slowdown."""

import dataclasses
import importlib.util
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia.errors import InputError
from eunomia.units import Locality
from eunomia_testbed.performance import (
    AfsScaling,
    AnalyticModel,
    DeclaredModel,
    DeclaredSpeeds,
    Links,
    Setting,
    known_of,
)
from eunomia_testbed.performance.declared import NETWORK_INTENSIVE
from eunomia_testbed.performance.facts import ALIASES, GPU_SPEED, MODELS, ModelFacts

_spec = importlib.util.spec_from_file_location("real_data", Path(__file__).with_name("real_data.py"))
real_data = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(real_data)

ANALYTIC = AnalyticModel()
ROUND = ModelFacts(
    parameters_millions=250.0, batch_size=100.0, items_per_second=50.0, gpu_type="P100", source="made up"
)


def setting(gpus=1, gpu_type="P100", locality=Locality.MACHINE, **more):
    return Setting(gpus=gpus, gpu_type=gpu_type, locality=locality, **more)


@pytest.mark.parametrize(
    ("model", "locality", "images_per_second"),
    [
        ("VGG16", Locality.ISLAND, 103.6),
        ("VGG16", Locality.MACHINE, 103.6),
        ("VGG16", Locality.RACK, 80.4),
        ("Inception-v3", Locality.MACHINE, 242.0),
        ("Inception-v3", Locality.RACK, 243.0),
    ],
)
def test_speeds_of_themis_table_1_are_reproduced(model, locality, images_per_second):
    """Four P100 on one server and over two, within 1 % of the print."""
    rate = ANALYTIC.rate(model, setting(4, locality=locality))
    assert rate * MODELS[model].batch_size == pytest.approx(images_per_second, rel=0.01)


def test_the_formula_gives_the_speed_computed_by_hand():
    links = Links(gb_per_second=(10.0, 1.0, 1.0, 1.0), latency_seconds=(0.0, 0.0, 0.0, 0.001), overlap=0.5)
    model = AnalyticModel({"M": ROUND}, links=links)
    assert model.step_seconds("M", setting(1)) == pytest.approx(2.0)
    # 10^9 bytes, twice 3/4 of them: 1.5 s, of which 0.25 s hide under half of the 0.5 s of computing
    assert model.all_reduce_seconds("M", setting(4)) == pytest.approx(1.5)
    assert model.step_seconds("M", setting(4)) == pytest.approx(0.5 + 1.25)
    assert model.step_seconds("M", setting(4, locality=Locality.ISLAND)) == pytest.approx(0.5)
    assert model.step_seconds("M", setting(4, locality=Locality.CLUSTER)) == pytest.approx(0.5 + 1.256)
    assert model.rate("M", setting(1, batch_size=50.0)) == pytest.approx(1.0)
    assert model.rate("M", setting(1, beside="M")) == pytest.approx(0.25)


def test_few_cpus_limit_the_speed_of_a_step():
    # 512 images of AlexNet with 3 CPUs take 0.6 s on a V100 (Synergy)
    few = ANALYTIC.step_seconds("AlexNet", setting(gpu_type="V100", cpus_per_gpu=3.0))
    assert few == pytest.approx(0.6, rel=0.03)
    # and ResNet-18 is 2.4 times faster with CPUs enough (the same)
    few, many = (ANALYTIC.rate("ResNet-18", setting(gpu_type="V100", cpus_per_gpu=cpus)) for cpus in (3.0, 24.0))
    assert many / few == pytest.approx(2.4, rel=0.05)
    language = setting(gpu_type="V100", cpus_per_gpu=1.0)
    assert ANALYTIC.rate("GNMT", language) == ANALYTIC.rate("GNMT", setting(gpu_type="V100"))


def test_gpu_types_match_in_any_common_spelling():
    fast = ANALYTIC.rate("ResNet-50", setting(gpu_type="V100"))
    for written in ("v100", "Tesla V100-SXM2-16GB", "V100M32"):
        assert ANALYTIC.rate("ResNet-50", setting(gpu_type=written)) == fast
    for other in ("A10G", "GTX 1080Ti", "K2000", "RTX T400"):
        with pytest.raises(InputError, match="GPU type must be one that is known"):
            ANALYTIC.rate("ResNet-50", setting(gpu_type=other))
    a100, a10 = (ANALYTIC.rate("ResNet-50", setting(gpu_type=kind)) for kind in ("NVIDIA A100", "A10"))
    assert a100 > fast > a10
    assert fast / ANALYTIC.rate("ResNet-50", setting()) == pytest.approx(1.48)
    # TensorFlow's own benchmark on the K80: 51.2 images/s
    assert ANALYTIC.rate("ResNet-50", setting(gpu_type="K80")) * 128 == pytest.approx(51.2, rel=0.05)


def test_names_of_other_projects_and_names_with_batch_sizes_are_known():
    for other, name in ALIASES.items():
        assert ANALYTIC.facts(other) is MODELS[name]
    small = ANALYTIC.rate("ResNet-18 (batch size 32)", setting())
    assert small == pytest.approx(ANALYTIC.rate("ResNet-18", setting(batch_size=32.0)))
    assert small == pytest.approx(16 * ANALYTIC.rate("ResNet-18", setting()))
    told = ["ResNet-18 (batch size 32)", "res18", "LM (batch size 5)", "LLaMA", "A3C (batch size 4)"]
    assert known_of(ANALYTIC, told) == {"ResNet-18 (batch size 32)", "res18", "LM (batch size 5)"}
    # "Transformer (IWSLT)" is a name of its own, not a batch size
    assert ANALYTIC.facts("Transformer (IWSLT)").batch_size == 256


def test_models_of_table_4_of_synergy_of_afs_and_of_oef_are_known():
    themis = "Inception-v3 AlexNet ResNet50 VGG16 VGG19 Bi-Att-Flow LangModel GNMT Transformer WaveNet DeepSpeech"
    synergy = "alexnet res18 res50 mobilenet shufflenet gnmt lstm transformer m5 deepspeech"
    afs = "VggnetModel256 GooglenetModel128 Inception4Model256 Resnet50Model128 DcganModel256 VideopredictionModel64"
    afs += " ChatbotModel256 DeepspeechModel64 TransformerModel256"
    for name in f"{themis} {synergy} {afs} VGG ResNet DenseNet LSTM RNN".split():
        assert ANALYTIC.rate(name, setting()) > 0.0
    assert all(facts.source and facts.gpu_type in GPU_SPEED for facts in MODELS.values())


def test_models_that_depend_on_the_network_are_known():
    assert ANALYTIC.is_network_intensive("VGG16")
    assert ANALYTIC.is_network_intensive("AlexNet")
    assert not ANALYTIC.is_network_intensive("Inception-v3")
    assert not ANALYTIC.is_network_intensive("WaveNet")


def test_scaling_is_close_to_the_measurements_of_afs():
    """One and four GPUs of a machine were fitted; two of it, and eight over 40 Gbit Ethernet, were not."""
    afs = AfsScaling.read(real_data.shared_data("afs/afs_scaling.csv"))
    fast = AnalyticModel(links=Links.ethernet(40))
    fitted = [name for name, facts in ALIASES.items() if name in afs.models and MODELS[facts].fixed_seconds]
    assert len(fitted) == 8
    for name in fitted:
        one, two, four, eight = (
            fast.rate(name, setting(gpus, "GTX 1080", Locality.MACHINE if gpus <= 4 else Locality.RACK))
            for gpus in (1, 2, 4, 8)
        )
        assert one == pytest.approx(afs.at(name, 1), rel=0.06), name
        assert two / one == pytest.approx(afs.speedup(name, 2), rel=0.08), name
        assert four / one == pytest.approx(afs.speedup(name, 4), rel=0.03), name
        assert eight / one == pytest.approx(afs.speedup(name, 8), rel=0.16), name


def test_a_faster_network_slows_no_gang_down():
    fast = AnalyticModel(links=Links.ethernet(100))
    assert Links.ethernet(10) == Links()
    for model in MODELS:
        rack, default = (chosen.rate(model, setting(8, locality=Locality.RACK)) for chosen in (fast, ANALYTIC))
        assert rack >= default


@given(
    model=st.sampled_from(sorted(MODELS)),
    gpu_type=st.sampled_from(sorted(GPU_SPEED)),
    gpus=st.sampled_from([1, 2, 3, 4, 8, 16, 64]),
    cpus=st.one_of(st.none(), st.floats(0.5, 64.0)),
)
def test_speed_never_grows_with_distance_nor_beyond_linear(model, gpu_type, gpus, cpus):
    rates = [ANALYTIC.rate(model, setting(gpus, gpu_type, place, cpus_per_gpu=cpus)) for place in Locality]
    assert rates == sorted(rates, reverse=True)
    one = ANALYTIC.rate(model, setting(1, gpu_type, cpus_per_gpu=cpus))
    assert 0.0 < rates[0] <= gpus * one * (1 + 1e-9)
    if gpus == 1:
        assert rates[0] == pytest.approx(rates[-1])


def test_unknown_names_and_bad_facts_are_refused():
    with pytest.raises(InputError, match=r'model must be one that is known: VGG16, .* but got "LLaMA"'):
        ANALYTIC.rate("LLaMA", setting())
    with pytest.raises(InputError, match=r'GPU type must be one that is known: .* but got "TPU"'):
        ANALYTIC.rate("VGG16", setting(gpu_type="TPU"))
    with pytest.raises(InputError, match="overlap must be between 0 and 1"):
        AnalyticModel(links=Links(overlap=1.5))
    with pytest.raises(InputError, match="gb_per_second of RACK must be positive"):
        AnalyticModel(links=Links(gb_per_second=(1.0, 1.0, 0.0, 1.0)))
    with pytest.raises(InputError, match="fixed_seconds of M must be at least 0"):
        AnalyticModel({"M": dataclasses.replace(ROUND, fixed_seconds=-1.0)})
    with pytest.raises(InputError, match="speed of V100 must be positive"):
        AnalyticModel(gpu_speed={"V100": float("nan")})


def test_declared_speeds_scale_linearly_with_gpus_apart_from_the_locality_slowdown():
    speeds = DeclaredSpeeds(
        {
            "net": DeclaredModel(seconds_per_iteration=120.0, slowdown=NETWORK_INTENSIVE),
            "cpu": DeclaredModel(seconds_per_iteration=2.0, batch_size=32.0, speed={"V100": 2.0, "K80": 1.0}),
        }
    )
    seconds = [1.0 / speeds.rate("net", setting(8, locality=place)) for place in Locality]
    assert seconds == pytest.approx([15.0, 15.0, 16.5, 19.5])
    assert speeds.rate("net", setting(1, locality=Locality.CLUSTER)) == pytest.approx(1 / 120)
    assert speeds.rate("cpu", setting(4, "V100", Locality.CLUSTER)) == pytest.approx(4.0)
    assert speeds.rate("cpu", setting(4, "K80", batch_size=64.0)) == pytest.approx(1.0)
    assert speeds.models == ("net", "cpu")


def test_bad_declarations_are_refused():
    with pytest.raises(InputError, match=r'model must be one .* but got "other" \(declared speeds\)'):
        DeclaredSpeeds({"m": DeclaredModel()}).rate("other", setting())
    with pytest.raises(InputError, match='GPU type must be one that is known: V100, but got "P100"'):
        DeclaredSpeeds({"m": DeclaredModel(speed={"V100": 1.0})}).rate("m", setting())
    with pytest.raises(InputError, match=r"seconds_per_iteration must be positive, but got 0.0 \(app file, m\)"):
        DeclaredSpeeds({"m": DeclaredModel(seconds_per_iteration=0.0)}, place="app file")
    with pytest.raises(InputError, match="slowdown must be four factors of at least 1"):
        DeclaredSpeeds({"m": DeclaredModel(slowdown=(1.0, 1.0, 0.9, 1.3))})
    with pytest.raises(InputError, match="speed must be positive for every GPU type"):
        DeclaredSpeeds({"m": DeclaredModel(speed={"V100": 0.0})})

"""Measured speeds: Gavel's and Shockwave's throughputs, AFS' and ElasticFlow's scaling, Synergy's profiles."""

import gzip
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia.errors import InputError
from eunomia.units import Locality
from eunomia_testbed.performance import (
    AfsScaling,
    ElasticFlowTables,
    GavelThroughputs,
    Setting,
    SynergyProfiles,
    read_performance,
)
from eunomia_testbed.performance.curves import Curve
from eunomia_testbed.performance.synergy import GB_PER_GIB

_spec = importlib.util.spec_from_file_location("real_data", Path(__file__).with_name("real_data.py"))
real_data = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(real_data)

SMALL = {
    "v100": {
        "('LM (batch size 5)', 1)": {"null": 10.0, "('LM (batch size 10)', 1)": [7.0, 4.0]},
        "('LM (batch size 5)', 4)": {"null": 34.0},
        "('LM (batch size 10)', 1)": {"null": 6.0, "('LM (batch size 5)', 1)": [4.0, 7.0]},
        "('A3C', 1)": {"null": 0.0},
    },
    "k80": {"('LM (batch size 5)', 1)": {"null": 2.0}},
    "v100_unconsolidated": {"('LM (batch size 5)', 4)": {"null": 20.0}},
}


def setting(gpus=1, gpu_type="V100", locality=Locality.MACHINE, **more):
    return Setting(gpus=gpus, gpu_type=gpu_type, locality=locality, **more)


@pytest.fixture
def small():
    return GavelThroughputs.from_mapping(SMALL, place="small.json")


def test_rates_of_single_jobs_are_found_by_gpu_type_in_any_letter_case(small):
    assert small.rate("LM (batch size 5)", setting()) == 10.0
    assert small.rate("LM (batch size 5)", setting(gpu_type="v100")) == 10.0
    assert small.rate("LM (batch size 5)", setting(gpu_type="K80")) == 2.0
    assert small.gpu_types == ("v100", "k80")


def test_rates_of_gangs_are_interpolated_and_larger_gangs_run_no_faster(small):
    assert small.rate("LM (batch size 5)", setting(4)) == 34.0
    assert small.rate("LM (batch size 5)", setting(2)) == pytest.approx(18.0)
    assert small.rate("LM (batch size 5)", setting(16)) == 34.0
    assert small.gangs("LM (batch size 5)") == (1, 4)


def test_gangs_over_several_machines_have_the_unconsolidated_rate_if_known(small):
    assert small.rate("LM (batch size 5)", setting(4, locality=Locality.RACK)) == 20.0
    assert small.rate("LM (batch size 10)", setting(1, locality=Locality.CLUSTER)) == 6.0
    assert small.without_placement().rate("LM (batch size 5)", setting(4, locality=Locality.RACK)) == 34.0


def test_pairs_have_measured_speeds_and_some_models_cannot_share_a_gpu(small):
    assert small.rate("LM (batch size 5)", setting(beside="LM (batch size 10)")) == 7.0
    assert small.rate("LM (batch size 10)", setting(beside="LM (batch size 5)")) == 4.0
    assert small.rate("LM (batch size 5)", setting(beside="A3C")) == 0.0


def test_a_batch_size_selects_its_job_type(small):
    assert small.rate("LM (batch size 5)", setting(batch_size=10.0)) == 6.0
    assert small.rate("LM", setting(batch_size=5.0)) == 10.0
    assert small.rate("A3C (batch size 4)", setting()) == 0.0  # A3C has no batch size in the table


def test_missing_throughputs_are_named(small):
    with pytest.raises(InputError, match=r'model must be one that is known: .* got "BERT" \(small.json\)'):
        small.rate("BERT", setting())
    with pytest.raises(InputError, match=r'GPU type must be one that is known: v100, k80, but got "A100"'):
        small.rate("A3C", setting(gpu_type="A100"))
    with pytest.raises(InputError, match=r"throughput of A3C with 1 GPUs on v100 must be above 0, but got 0.0"):
        small.measured("A3C", 1, "v100")
    with pytest.raises(InputError, match="with 2 GPUs on v100 must be above 0, but got it is not measured"):
        small.measured("LM (batch size 5)", 2, "v100")
    with pytest.raises(InputError, match="GPU type must be one"):
        small.rate("LM (batch size 5)", setting(gpu_type="v100_unconsolidated"))


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("[]", "throughputs must be tables in tables"),
        ("{", "throughputs must be JSON"),
        ("{}", "throughputs must hold at least one job type"),
        ('{"v100": {"LM": {"null": 1}}}', r"a job type must be written \('<model>', <GPUs>\)"),
        ('{"v100": {"(\'LM\', 1)": {}}}', "null must be at least 0"),
        ('{"v100": {"(\'LM\', 1)": {"null": -1}}}', "null must be at least 0"),
        ('{"v100": {"(\'LM\', 1)": {"null": NaN}}}', "null must be at least 0"),
        ('{"v100": {"(\'LM\', 0)": {"null": 1}}}', "GPUs must be at least 1"),
        ('{"v100": {"(\'LM\', 1)": {"null": 1, "(\'LM\', 1)": [1]}}}', "a pair must have two rates"),
    ],
)
def test_errors_in_throughputs_name_rule_and_place(tmp_path, content, rule):
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(InputError, match=rule) as raised:
        GavelThroughputs.read(path)
    assert "bad.json" in str(raised.value)


def test_gzip_files_are_read_and_missing_files_are_refused(tmp_path):
    path = tmp_path / "small.json.gz"
    path.write_bytes(gzip.compress(json.dumps(SMALL).encode()))
    assert read_performance(path).rate("LM (batch size 5)", setting()) == 10.0
    with pytest.raises(InputError, match="must be readable"):
        read_performance(tmp_path / "none.json")
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(json.dumps(SMALL).encode())[:-30])
    with pytest.raises(InputError, match="must be readable"):
        read_performance(tmp_path / "cut.json.gz")


def test_published_throughputs_of_shockwave_and_gavel_are_read():
    tacc = read_performance(real_data.shared_data("shockwave/tacc_throughputs.json.gz"))
    assert isinstance(tacc, GavelThroughputs)
    assert len(tacc.models) == 26
    assert set(tacc.gpu_types) == {"v100", "p100", "k80"}
    assert tacc.gangs("LM (batch size 5)") == (1, 2, 4, 8)
    assert tacc.gangs("Recommendation (batch size 512)") == (1,)
    # FORMAT.md: an epoch of 50000 / 32 steps takes 36.358 s, and one of ResNet-50 (64) 502.73 s
    assert 50_000 / 32 / tacc.measured("ResNet-18 (batch size 32)", 1, "v100") == pytest.approx(36.35836532191956)
    assert 100_000 / 64 / tacc.measured("ResNet-50 (batch size 64)", 1, "v100") == pytest.approx(502.72972588746154)
    with pytest.raises(InputError, match="A3C"):
        tacc.measured("A3C", 1, "v100")
    gavel = read_performance(real_data.shared_data("gavel/simulation_throughputs.json.gz"))
    assert gavel.rate("ResNet-50 (batch size 128)", setting(2, "k80")) == 0.0


def test_the_scaling_of_afs_is_read():
    afs = read_performance(real_data.shared_data("afs/afs_scaling.csv"))
    assert isinstance(afs, AfsScaling)
    assert afs.rate("VggnetModel256", setting(1)) == pytest.approx(1 / 3.020532)
    assert afs.speedup("VggnetModel256", 8) == pytest.approx(6.61418, abs=1e-5)
    assert afs.rate("VggnetModel256", setting(64)) == afs.rate("VggnetModel256", setting(8))
    # Table 4 of the paper: the largest gangs
    most = {"VggnetModel256": 8, "GooglenetModel128": 20, "Inception4Model256": 52, "Resnet50Model128": 28}
    most |= {"DcganModel256": 20, "VideopredictionModel64": 28, "ChatbotModel256": 4, "DeepspeechModel64": 20}
    assert {model: afs.most(model) for model in most} == most
    with pytest.raises(InputError, match="model must be one that is known"):
        afs.rate("BERT", setting())


def test_step_times_of_afs_are_interpolated_and_bad_rows_refused(tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text("model,global_batch,num_gpus,step_time_s\nA,1,1,4\nA,1,4,1\n")
    assert read_performance(path).rate("A", setting(2)) == pytest.approx(1 / 3)
    for text, rule in {
        "model,num_gpus\nA,1\n": r"the header must name model, .* but got no global_batch, step_time_s",
        "model,global_batch,num_gpus,step_time_s\nA,1,0,4\n": "num_gpus must be at least 1",
        "model,global_batch,num_gpus,step_time_s\nA,1,1.5,4\n": "num_gpus must be a whole number",
        "model,global_batch,num_gpus,step_time_s\nA,1,1,0\n": "step_time_s must be above 0",
        "model,global_batch,num_gpus,step_time_s\nA,1,1,nan\n": "step_time_s must be above 0",
        "model,global_batch,num_gpus,step_time_s\nA,1,1\n": "as many fields as the header",
        "model,global_batch,num_gpus,step_time_s\nA,1,1,4\nA,1,1,5\n": r"must stand once.*line 3",
        "model,global_batch,num_gpus,step_time_s\n": "at least one row",
    }.items():
        path.write_text(text)
        with pytest.raises(InputError, match=rule):
            AfsScaling.read(path)


def test_tables_of_elasticflow_are_read():
    tables = read_performance(real_data.shared_data("elasticflow_profiles"))
    assert isinstance(tables, ElasticFlowTables)
    assert tables.rate("vgg16 (batch size 64)", setting(8, "A100")) == pytest.approx(19.3298561900258)
    assert tables.rate("vgg16", setting(8, "a100", batch_size=64)) == pytest.approx(19.3298561900258)
    middle = (9.03564356887826 + 14.755024126128259) / 2
    assert tables.rate("vgg16 (batch size 64)", setting(3, "A100")) == pytest.approx(middle)
    assert tables.rate("resnet50_cifar10 (batch size 64)", setting(16, "A100")) == 0.0
    assert tables.rate("deepspeech2 (batch size 32)", setting(64, "A100")) == pytest.approx(14.461504733734241)
    assert tables.rate("yolov3 (batch size 64)", setting(32, "T4")) == pytest.approx(0.8514782062868322)
    assert tables.rate("vgg16 (batch size 64)", setting(1, "T4")) == 0.0  # measured on A100 alone
    with pytest.raises(InputError, match="model must be one that is known"):
        tables.rate("vgg16 (batch size 63)", setting(1, "A100"))
    with pytest.raises(InputError, match=r"GPU type must be one that is known: a100, t4"):
        tables.rate("vgg16 (batch size 64)", setting(1, "V100"))


def test_profiles_of_synergy_are_read():
    synergy = read_performance(real_data.shared_data("synergy"))
    assert isinstance(synergy, SynergyProfiles)
    assert len(synergy.models) == 12
    # at the proportional share every model runs at its base speed
    for model in synergy.models:
        assert synergy.relative(model, None, None) == pytest.approx(1.0)
        assert synergy.relative(model, 3.0, 62.5 / GB_PER_GIB) == pytest.approx(1.0)
        fast = Setting(gpus=1, gpu_type="V100", locality=Locality.MACHINE)
        assert synergy.rate(model, fast) * synergy.demand(model).seconds_per_iteration == pytest.approx(1.0)
    assert synergy.relative("res18", 9.0, None) == pytest.approx(2.4)
    assert synergy.relative("res18", 3.5, None) == pytest.approx(1.15)
    assert synergy.relative("alexnet", 12.0, 125.0 / GB_PER_GIB) == pytest.approx(2.94)
    assert synergy.relative("alexnet", 12.0, 93.75 / GB_PER_GIB) == pytest.approx(2.47)
    assert synergy.relative("gnmt", 1.0, None) == pytest.approx(1.0)
    with pytest.raises(InputError, match=r"GPU type must be one that is known: V100"):
        synergy.rate("res18", setting(gpu_type="T4"))


def test_errors_in_synergy_profiles_name_gaps_and_missing_models(tmp_path):
    profiles = "variant,model,gpus,cpus_per_gpu,mem_gb_per_gpu,rel_tput\n"
    models = "variant,model,gpus,demand_cpu,demand_mem_gb,batch,iter_time_base_s\n"
    rows = [f"cpu_per_gpu=3,m,1,{cpus},{memory},1\n" for cpus in (1, 3) for memory in (20, 60)]
    (tmp_path / "models.csv").write_text(models + "cpu_per_gpu=3,m,1,3,60,32,0.5\n")
    (tmp_path / "profiles.csv").write_text(profiles + "".join(rows[:3]))
    with pytest.raises(InputError, match=r"grid of m .* but got no 3 CPUs with 60 GB"):
        SynergyProfiles.read(tmp_path)
    (tmp_path / "profiles.csv").write_text(profiles + "".join(rows) + rows[0])
    with pytest.raises(InputError, match="a point of a grid must stand once"):
        SynergyProfiles.read(tmp_path)
    (tmp_path / "profiles.csv").write_text(profiles + "".join(rows).replace(",m,", ",other,"))
    with pytest.raises(InputError, match=r"every model must stand in profiles.csv and models.csv, but got m, other"):
        SynergyProfiles.read(tmp_path)
    (tmp_path / "profiles.csv").write_text(profiles + "".join(rows))
    assert SynergyProfiles.read(tmp_path).rate("m", setting()) == pytest.approx(2.0)


def test_unknown_formats_are_refused(tmp_path):
    (tmp_path / "speeds.csv").write_text("who,knows\n1,2\n")
    with pytest.raises(InputError, match=r'measured speeds must be .* but got the first line "who,knows"'):
        read_performance(tmp_path / "speeds.csv")
    with pytest.raises(InputError, match="but got a folder with neither"):
        read_performance(tmp_path)


@given(
    points=st.dictionaries(st.integers(1, 64), st.floats(0.1, 100.0), min_size=1, max_size=6),
    gpus=st.integers(1, 80),
    of_times=st.booleans(),
)
def test_a_rate_between_two_measured_sizes_lies_between_their_rates(points, gpus, of_times):
    rate = Curve.of(points, of_times=of_times).at(gpus)
    below = [points[count] for count in sorted(points) if count <= gpus]
    above = [points[count] for count in sorted(points) if count >= gpus]
    if not below:
        assert rate == 0.0
    else:
        ends = (below[-1], above[0] if above else below[-1])
        assert min(ends) * (1 - 1e-9) <= rate <= max(ends) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"V100":' * 100_000, "throughputs must be tables in tables"),
        (gzip.compress(bytes(range(256)) * 40)[:200] + b"\x00" * 40, "a file of measured speeds must be readable"),
        (b"model,global_batch,num_gpus,step_time_s\n" + b"1" * 200_000, "a file of measured speeds must be CSV"),
    ],
)
def test_damaged_files_are_refused(content: bytes, said: str, tmp_path):
    path = tmp_path / "speeds"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_performance(path)


def test_a_byte_order_mark_in_a_file_is_skipped(tmp_path):
    path = tmp_path / "speeds.csv"
    path.write_bytes(b"\xef\xbb\xbfmodel,global_batch,num_gpus,step_time_s\r\nm,8,1,0.5\r\n")
    assert read_performance(path).models == ("m",)


def test_throughputs_are_pickled_to_the_same_bytes_in_every_process():
    """By a hash of them a run that is gone on with knows that they are those of before."""
    source = (
        "import hashlib, pickle\n"
        "from eunomia_testbed.performance import GavelThroughputs\n"
        "rates = {\"('%s', 1)\" % name: {'null': 1.0} for name in ('LM', 'A3C', 'CycleGAN', 'ResNet-18')}\n"
        "made = GavelThroughputs.from_mapping({'v100': rates}, place='here', placement=False)\n"
        "again = pickle.loads(pickle.dumps(made))\n"
        "assert again.models == made.models and not again.placement and again.measured('LM', 1, 'V100') == 1.0\n"
        "print(hashlib.sha256(pickle.dumps(made)).hexdigest())\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", source], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1

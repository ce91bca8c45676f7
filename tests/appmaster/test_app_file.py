from pathlib import Path

import pytest

from eunomia.errors import InputErrors
from eunomia_appmaster.app.app_file import AppFile
from eunomia_appmaster.app.command import Filling
from eunomia_appmaster.app.space import Categorical, Float, Int

SEARCH = """
[app]
name   = "digits-sha"
user   = "ana"
weight = 2.0
[job]
command = "python train.py {args} --epochs 70"
slots   = { min = 1, max = 4 }
max_iterations   = 1600
checkpoint_every = "30s"
retries = 2
milestones = [800, 1200]
env = { OMP_NUM_THREADS = "1" }
[space]
lr       = { type = "float", low = 1e-4, high = 0.5, log = true }
width    = { type = "int", low = 16, high = 256, step = 16 }
momentum = { type = "categorical", choices = [0.0, 0.9] }
[tuner]
kind   = "successive_halving"
metric = "val/accuracy"
mode   = "max"
trials = 16
reduction_factor = 2
sampler = "random"
seed   = 7
"""
SINGLE = """
[app]
name = "resnet"
[job]
command = "python train.py --lr 0.1"
slots = 2
max_iterations = 20000
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("")
    return tmp_path


def errors_of(text: str, folder: Path) -> list[str]:
    with pytest.raises(InputErrors) as caught:
        AppFile.parse(text, place="resnet.toml", folder=folder)
    return [str(error) for error in caught.value.errors]


def test_a_complete_search_file_is_parsed(folder: Path) -> None:
    file = AppFile.parse(SEARCH, place="digits-sha.toml", folder=folder)
    assert (file.app.name, file.user, file.app.weight) == ("digits-sha", "ana", 2.0)
    assert (file.job.slots.min, file.job.slots.max) == (1, 4)
    assert file.job.checkpoint_every == 30.0
    assert file.job.milestones == (800, 1200)
    assert file.job.env == {"OMP_NUM_THREADS": "1"}
    assert file.space == {
        "lr": Float(low=1e-4, high=0.5, log=True),
        "width": Int(low=16, high=256, step=16),
        "momentum": Categorical(choices=(0.0, 0.9)),
    }
    assert len(file.make_tuner().trials()) == 16


def test_a_single_job_needs_neither_space_nor_tuner(folder: Path) -> None:
    file = AppFile.parse(SINGLE, place="resnet.toml", folder=folder, user="ben")
    assert file.user == "ben"
    assert (file.search.trials, file.search.least, file.search.most) == (1, 2, 2)
    assert [trial.parameters for trial in file.make_tuner().trials()] == [{}]


def test_the_command_is_filled_in_without_a_shell(folder: Path) -> None:
    line = 'python train.py {args} --note "a; rm -rf $HOME {seed}" --dir={log_dir} {{lr}} {lr}'
    text = SEARCH.replace("python train.py {args} --epochs 70", line.replace('"', '\\"'))
    file = AppFile.parse(text, place="a.toml", folder=folder)
    filling = Filling(
        parameters={"lr": 0.013, "width": 96},
        seed=5,
        max_iterations=9,
        log_dir=Path("/l o g"),
        checkpoint_dir=Path("/c"),
    )
    words = file.command.fill(filling)
    assert words[1:] == [
        "train.py", "--lr=0.013", "--width=96", "--note", "a; rm -rf $HOME 5", "--dir=/l o g", "{lr}", "0.013",
    ]  # fmt: skip


def test_python_in_a_command_is_the_interpreter_of_the_submitter(folder: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "venv" / "bin" / "python"
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    command = AppFile.parse(SINGLE, place="a.toml", folder=folder).command
    filling = Filling(parameters={}, seed=0, max_iterations=None, log_dir=Path("l"), checkpoint_dir=Path("c"))
    assert command.fill(filling, virtual_env=str(tmp_path / "venv"))[0] == str(theirs)
    assert command.fill(filling)[0] == "python", "each node takes its own"
    unseen = f"/{'x' * 300}"  # the system refuses to look, as into a home that is closed to this account
    assert command.fill(filling, virtual_env=unseen)[0] == "python"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("slots = 2", 'slots = 2\nstall_after = "4s"', 'stall_after must be at least "5s", or "off", but got "4s"'),
        *(
            (
                "slots = 2",
                f"slots = 2\nstall_after = {given}",
                'stall_after must be a positive duration with a unit, such as "10m", or "off", '
                f"but got {given} (resnet.toml, [job].stall_after)",
            )
            for given in ('"0s"', '"-5s"', '"never"', "90")
        ),
        *(
            (
                "slots = 2",
                f"slots = 2\nstall_steps = {given}",
                "stall_steps must be a number from 3 to 1000000, but got ",
            )
            for given in ("2", "-1", "0", "nan", "1e7", '"many"', "true")
        ),
        (
            "slots = 2",
            "slots = 0",
            "slots must be a whole number from 1 to 65536, or { min = 1, max = 4 }, "
            "but got 0 (resnet.toml, [job].slots)",
        ),
        (
            "slots = 2",
            "slots = { min = 3, max = 2 }",
            "slots must have a min that is at most its max, but got {'min': 3, 'max': 2} (resnet.toml, [job].slots)",
        ),
        (
            "slots = 2",
            'slots = { min = 1, max = 2 }\nelastic = "always"',
            'elastic must be "restart" or "live", but got "always" (resnet.toml, [job].elastic)',
        ),
        (
            "slots = 2",
            "slots = 2\nslot = 3",
            '[job] must hold known keys only, but got "slot"; did you mean "slots"? (resnet.toml, [job].slot)',
        ),
        (
            'name = "resnet"',
            'name = "../etc"',
            "name must be 1 to 64 letters, digits, dots, dashes or underscores, and begin with a letter or digit, "
            'but got "../etc" (resnet.toml, [app].name)',
        ),
        (
            "slots = 2",
            'slots = 2\ncheckpoint_every = "-5s"',
            'checkpoint_every must be a positive duration with a unit, such as "10m", '
            'but got "-5s" (resnet.toml, [job].checkpoint_every)',
        ),
        (
            "slots = 2",
            'slots = 2\ncheckpoint_every = "9999999d"',
            "checkpoint_every must be at most 100 years, but got \"9999999d\" (resnet.toml, [job].checkpoint_every)",
        ),
        (
            "20000",
            "-1",
            "max_iterations must be a whole number from 1 to 1000000000000, "
            "but got -1 (resnet.toml, [job].max_iterations)",
        ),
        (
            "slots = 2",
            "slots = 2\nmilestones = [30, 10]",
            "milestones must be iterations in ascending order, but got [30, 10] (resnet.toml, [job].milestones)",
        ),
        ("slots = 2", f"slots = 2\nmilestones = [{10**13}]", "milestones must be at most 1000000000000, but got [1000"),
        ("slots = 2", "slots = 2\nepochs = 0", "epochs must be a whole number from 1 to 1000000000000, but got 0"),
        ("slots = 2", "slots = 2\nbatch_size = -8", "batch_size must be a whole number from 1 to 1000000000000"),
        ("slots = 2", "slots = 2\nbatch_size = nan", "batch_size must be a whole number from 1 to 1000000000000"),
        ("slots = 2", "slots = 2\nsamples_per_epoch = 0.5", "samples_per_epoch must be a whole number from 1 to"),
        (
            "slots = 2",
            'slots = 2\nadapts = "gnss"',
            'adapts must be "static" or "accordion" or "gns" or "other", but got "gnss" (resnet.toml, [job].adapts)',
        ),
        ("train.py", "x" * 300 + ".py", "command must name a script that exists in"),
        (
            "slots = 2",
            'slots = 2\nenv = { EUNOMIA_JOB = "x" }',
            "env must not have EUNOMIA_JOB, which the launcher sets, "
            "but got {'EUNOMIA_JOB': 'x'} (resnet.toml, [job].env)",
        ),
        (
            "slots = 2",
            'slots = 2\nenv = { RANK = "0", "A-B" = "x", C = 1 }',
            "env must not have RANK, which the launcher sets; env must name variables of letters, digits and "
            'underscores, not "A-B"; env must give C a text in quotes, but got',
        ),
        (
            "--lr 0.1",
            "--lr {rl}",
            "command must use known placeholders: {args} {seed} {max_iterations} {log_dir} {checkpoint_dir}, "
            'but got "{rl}" (resnet.toml, [job].command)',
        ),
        (
            "--lr 0.1",
            "--all={args}",
            '{args} must stand alone in command, but got "--all={args}" (resnet.toml, [job].command)',
        ),
        (
            "python train.py --lr 0.1",
            "no-such-program",
            'command must start a program that exists, but got "no-such-program" (resnet.toml, [job].command)',
        ),
        (
            "max_iterations = 20000",
            '[tuner]\nkind = "sucessive_halving"',
            "kind must name a tuner: curve_stopping, external, hyperband, median_stopping, none, successive_halving, "
            'but got "sucessive_halving"; did you mean "successive_halving"? (resnet.toml, [tuner].kind)',
        ),
        ("[app]", "[app", "an app file must be TOML, but got"),
        ("slots = 2", f"slots = {'9' * 5000}", "an app file must have names and numbers of at most 1000 characters"),
        ("slots = 2", f"slots = {'[' * 5000}", "an app file must have at most 32 lists and tables in each other"),
        (
            "[app]",
            "[jobs]\n[app]",
            'an app file must hold [app], [job], [space] and [tuner] only, but got "jobs"; did you mean "job"? '
            "(resnet.toml, jobs)",
        ),
    ],
)  # fmt: skip
def test_errors_state_the_rule_the_value_and_its_place(old: str, new: str, message: str, folder: Path) -> None:
    (found,) = errors_of(SINGLE.replace(old, new), folder)
    assert found.startswith(message)


def test_a_script_that_does_not_exist_is_refused(folder: Path) -> None:
    (found,) = errors_of(SINGLE.replace("train.py", "trian.py"), folder)
    assert found == (
        f'command must name a script that exists in {folder}, but got "trian.py" (resnet.toml, [job].command)'
    )


@pytest.mark.parametrize(
    ("distribution", "message"),
    [
        ('{ type = "float", low = 2.0, high = 1.0 }', "low must be at most high"),
        ('{ type = "float", low = 0.0, high = 1.0, log = true }', "low must be above 0 where log is true"),
        ('{ type = "float", low = nan, high = 1.0 }', "low, high and step must be finite numbers, but got nan"),
        ('{ type = "float", low = 0.0, high = 1.0, step = 0.0 }', "step must be above 0"),
        ('{ type = "float", low = 0.0, high = 1.0, step = 1e-320 }', "step must leave at most 9007199254740992 values"),
        ('{ type = "float", low = 0.0, high = 1.7e308 }', "low, high and step must be at most 1e+300, but got"),
        (f'{{ type = "float", low = 0, high = {"9" * 400} }}', "low, high and step must be at most 1e+300, but got 99"),
        ('{ type = "int", low = 0.5, high = 1 }', "low must be a whole number"),
        ('{ type = "categorical", choices = [] }', "choices must name at least one value"),
        ('{ type = "flaot", low = 0, high = 1 }', 'type must be "float", "int" or "categorical", but got "flaot"; did'),
        ('{ type = "float", low = 0.0 }', "high must be given, but got none (resnet.toml, [space].lr.high)"),
        (
            '{ type = "float", low = 0.0, high = 1.0, lgo = true }',
            '[space].lr must hold known keys only, but got "lgo"',
        ),
    ],
)
def test_invalid_distributions_are_refused(distribution: str, message: str, folder: Path) -> None:
    text = SEARCH.replace('{ type = "float", low = 1e-4, high = 0.5, log = true }', distribution)
    (found,) = errors_of(text, folder)
    assert found.startswith(message)
    assert "(resnet.toml, [space].lr" in found


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'metric = "val/accuracy"\n',
            "",
            'metric must name a TensorBoard tag for tuner "successive_halving", '
            "but got none (resnet.toml, [tuner].metric)",
        ),
        (
            "reduction_factor = 2",
            "reduction_facter = 2",
            '[tuner] must hold known keys only, but got "reduction_facter"; did you mean "reduction_factor"? '
            "(resnet.toml, [tuner].reduction_facter)",
        ),
        (
            "reduction_factor = 2",
            "reduction_factor = 1",
            "reduction_factor must be greater than or equal to 2, but got 1",
        ),
        ("trials = 16\n", "", "trials must be given where there is a [space]"),
        ("trials = 16\n", "trials = 1\n", "trials must be at least 2 for successive_halving, but got 1"),
        (
            "max_iterations   = 1600",
            "max_iterations   = 7",
            "max_iterations must leave at least one iteration to each of the 5 phases, "
            "but got 7, that is rungs at 0, 1,",
        ),
        ('mode   = "max"', 'mode   = "up"', 'mode must be "min" or "max", but got "up" (resnet.toml, [tuner].mode)'),
        ('"random"', '"grid"', 'a grid needs a step or choices for "lr", but got none'),
    ],
)
def test_invalid_tuners_are_refused(old: str, new: str, message: str, folder: Path) -> None:
    (found,) = errors_of(SEARCH.replace(old, new), folder)
    assert found.startswith(message)


def test_a_grid_of_very_many_points_is_never_held_in_memory(folder: Path) -> None:
    lr = 'lr       = { type = "float", low = 1e-4, high = 0.5, log = true }'
    text = SEARCH.replace(lr, 'lr = { type = "float", low = 0.0, high = 1.0, step = 1e-9 }').replace(
        '"random"', '"grid"'
    )
    file = AppFile.parse(text, place="resnet.toml", folder=folder)
    assert [trial.parameters["lr"] for trial in file.make_tuner().trials()] == [0.0] * 16
    single = (
        text.replace("trials = 16\n", "")
        .replace('"successive_halving"', '"none"')
        .replace("reduction_factor = 2\n", "")
    )
    (found,) = errors_of(single, folder)
    assert found.startswith(
        "a grid must have at most 10000 points, or trials be given, but got 32000000032 (resnet.toml"
    )


def test_all_errors_are_reported_together(folder: Path) -> None:
    text = SEARCH.replace("weight = 2.0", "weight = -1.0")
    text = (
        text.replace("step = 16", "step = -16")
        .replace("train.py", "gone.py")
        .replace('"successive_halving"', '"magic"')
    )
    places = [error.rpartition("resnet.toml, ")[2] for error in errors_of(text, folder)]
    assert places == ["[app].weight)", "[space].width.step)", "[job].command)", "[tuner].kind)"]


@pytest.mark.parametrize(
    ("edits", "places"),
    [
        ({'"max"': '"minimum"', "trials = 16": "trails = 16"}, ["[tuner].mode", "[tuner].trails", "[tuner].trials"]),
        ({'"max"': '"minimum"', 'metric = "val/accuracy"': ""}, ["[tuner].mode", "[tuner].metric"]),
        ({"retries = 2": "retries = -2", "train.py": "gone.py"}, ["[job].retries", "[job].command"]),
        ({'command = "python': 'comand = "python'}, ["[job].command", "[job].comand"]),
        (
            {'command = "python': 'comand = "python', "max_iterations   = 1600": "", 'metric = "val/accuracy"': ""},
            ["[job].command", "[job].comand", "[tuner].metric", "[job].max_iterations"],
        ),
        ({"step = 16": "step = -16", 'metric = "val/accuracy"': ""}, ["[space].width.step", "[tuner].metric"]),
        (
            {"max_iterations   = 1600": "max_iterations = -1", "trials = 16": ""},
            ["[job].max_iterations", "[tuner].trials"],
        ),
        ({"trials = 16": "trials = 0", '"random"': '"grit"'}, ["[tuner].trials", "[tuner].sampler"]),
        (
            {
                '"successive_halving"': '"hyperband"\nmin_iterations = 10',
                "trials = 16": "",
                "max_iterations   = 1600": "",
            },
            ["[job].max_iterations"],
        ),
    ],
)  # fmt: skip
def test_an_error_neither_hides_nor_causes_another(edits: dict[str, str], places: list[str], folder: Path) -> None:
    text = SEARCH
    for old, new in edits.items():
        text = text.replace(old, new)
    assert [error.rpartition("(resnet.toml, ")[2][:-1] for error in errors_of(text, folder)] == places


def test_control_characters_in_an_app_file_are_not_printed_in_errors(folder: Path) -> None:
    (found,) = errors_of(SINGLE.replace('"resnet"', '"\\u001b[2Jx"'), folder)
    assert "\x1b" not in found


def test_a_grid_without_a_number_of_trials_runs_all_of_its_points(folder: Path) -> None:
    text = (
        SINGLE
        + '[space]\nlr = { type = "categorical", choices = [1, 2, 3] }\nb = { type = "int", low = 0, high = 1 }\n'
    )
    file = AppFile.parse(text + '[tuner]\nsampler = "grid"\n', place="a.toml", folder=folder)
    points = [trial.parameters for trial in file.make_tuner().trials()]
    assert points == [{"lr": lr, "b": b} for lr in (1, 2, 3) for b in (0, 1)]


@pytest.mark.parametrize(
    ("slots", "batch_size", "error"),
    [
        ("2", 64, 'slots must have a min below its max where elastic is "live", but got 2 (resnet.toml, [job].slots)'),
        ("{ min = 1, max = 8 }", 4, 'batch_size must be at least the 8 of slots where elastic is "live", but got 4 '),
        ("{ min = 1, max = 8 }", 8, ""),
    ],
)
def test_a_job_that_changes_live_has_several_sizes_and_a_sample_for_each_worker(
    slots: str, batch_size: int, error: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").touch()
    text = f"""[app]
name = "resnet"
[job]
command = "python train.py"
slots = {slots}
batch_size = {batch_size}
elastic = "live"
"""
    if not error:
        assert AppFile.parse(text, place="resnet.toml", folder=tmp_path).job.elastic == "live"
        return
    with pytest.raises(InputErrors) as found:
        AppFile.parse(text, place="resnet.toml", folder=tmp_path)
    assert error in str(found.value)

"""Commands of the documents that ``make test`` only parses, each with the reason; all others run."""

from collections.abc import Mapping
from typing import Final

ARBITER: Final = "needs a running arbiter"
STAYS: Final = "serves until it is ended"
LIVE: Final = "needs a finished live run"
MINUTES: Final = "takes minutes"
DATA: Final = "needs a published trace, which the repository does not hold"
TOOL: Final = "needs another tool, or changes the environment of the tests"

ONLY_PARSED: Final[Mapping[str, tuple[str, ...]]] = {
    ARBITER: (
        "curl -s http://127.0.0.1:7721/health",
        "eunomia apps",
        "eunomia apps --watch",
        "eunomia explain digits-2",
        "eunomia explain digits-sha/3",
        "eunomia explain hang/1",
        "eunomia explain quick",
        "eunomia explain steady",
        "eunomia logs digits-2/1",
        "eunomia profiles drop KIND",
        "eunomia profiles import FILE",
        "eunomia resume cnn",
        "eunomia submit digits-sha.toml",
        "eunomia submit digits.toml",
        "eunomia submit quick.toml",
        "eunomia submit steady.toml",
        "export EUNOMIA_ADDRESS=gpu-box.example:7720 EUNOMIA_CA_FILE=~/eunomia/ca.pem"
        " EUNOMIA_TOKEN_FILE=~/eunomia/token",
    ),
    STAYS: (
        ".venv/bin/eunomia serve --policy themis --set rounds.lease=10s --slots 4",
        "eunomia serve",
        "eunomia serve --address 0.0.0.0:7720 --make-certificates",
        "eunomia serve --address 0.0.0.0:7720 --tls-cert tls/cert.pem --tls-key tls/key.pem --tls-ca tls/ca.pem",
        "eunomia serve --policy lottery --slots 2 --plugin-path eunomia_lottery.py",
        "eunomia serve --policy shockwave --cpu-only --slots 1 --out out"
        " --set plugins.shockwave_utility.round_length=5s --set plugins.shockwave_utility.window=12"
        " --set plugins.shockwave_forecast.largest_batch.adapting=128",
    ),
    LIVE: (
        "eunomia explain digits-sha/3 --run eunomia-out/latest",
        "eunomia explain digits-sha/3 --run eunomia-out/latest --at 60s",
        "eunomia explain digits-sha/3 --run eunomia-out/latest --history",
        "eunomia journal check eunomia-out/latest --over",
        "eunomia journal salvage ~/.local/state/eunomia",
        "eunomia profiles check FILE",
        "eunomia profiles export FOLDER KIND FILE",
        "eunomia profiles list FOLDER",
        "eunomia profiles show FOLDER KIND",
    ),
    MINUTES: (
        "PYTHONPATH=tests python -m chaos.kills --kills 30 --runs 5",
        "eunomia advise example.csv --cluster lab.toml --speeds analytic --know types --cost start=30s"
        " --cost checkpoint=20s --cost restore=20s --budget 5m --out eunomia-out/advice",
        "eunomia advise jobs.csv --cluster lab.toml --speeds analytic --know types --unknown-models"
        ' "resnet50=ResNet-50,vgg16=VGG16,gnmt-en-de=GNMT,transformer-base=Transformer,own-net=equal"'
        " --cost start=2m --cost checkpoint=1m --cost restore=1m",
        "eunomia audit --replay eunomia-out/audit/oef_noncooperative/under_reports.json",
        "eunomia audit oef_noncooperative --only under_reports --out eunomia-out/audit",
        "eunomia demo --policy lottery",
        "eunomia demo --policy lottery --plugin-path docs/examples/eunomia_lottery/eunomia_lottery.py",
        "make demo",
        "python -m eunomia_testbed.curves.evaluate curves.csv",
        "python -m eunomia_testbed.curves.record --out curves.csv",
        "python -m eunomia_testbed.demo.shares --scale 0.4",
    ),
    DATA: (
        'eunomia simulate canonical_120jobs_32gpus.trace --throughputs tacc_throughputs.json.gz --cluster "32x1 V100"'
        " --rules gavel --policy index_rule --set plugins.index_rule.contention=3.75 --know measured --rho static",
        'eunomia simulate canonical_120jobs_32gpus.trace --throughputs tacc_throughputs.json.gz --cluster "32x1 V100"'
        " --policy max_min_fairness --policy finish_time_fairness --rules gavel",
        "eunomia reproduce afs --set clusters=2869ce,e13805,ed69ec --seeds 0 --set trace=philly.csv.gz"
        " --set scaling=afs_scaling.csv",
        "eunomia reproduce oef --set throughputs=simulation_throughputs.json.gz",
        "eunomia reproduce shockwave --set throughputs=tacc_throughputs.json.gz",
        'eunomia reproduce synergy --set data=synergy --only "Table 2" --only "Table 3" --only "Table 5"',
        "eunomia reproduce themis",
    ),
    TOOL: (
        "cd docs/examples/digits",
        "pip install '.[live]'",
        "pip install .",
        "pip install ./eunomia_lottery",
        "pip uninstall eunomia-lottery",
        "sqlite3 -readonly journal.sqlite 'SELECT id, now, length(decision) FROM steps ORDER BY id DESC LIMIT 3'",
        "sqlite3 journal.sqlite \".backup 'backup/journal.sqlite'\"",
    ),
}
"""By reason, commands as a page has them, on one line and without a comment."""

REASON_OF: Final[Mapping[str, str]] = {text: reason for reason, texts in ONLY_PARSED.items() for text in texts}

"""The questions that authors of policies ask first, each with the line of code that answers it.

``tests/make_reference.py`` writes them at the top of the page of public names, and a test runs them.
"""

from typing import Final, NamedTuple


class Question(NamedTuple):
    """A question and its line: ``self`` is the plugin, ``job``, ``app`` and ``gpu`` are rows, ``jobs`` is an array."""

    asked: str
    line: str


QUESTIONS: Final[dict[str, tuple[Question, ...]]] = {
    "Which jobs wait, and which may get GPUs": (
        Question("Which jobs are there, by arrival? (rows)", "snapshot.active"),
        Question("Which of them wait?", "snapshot.active[snapshot.jobs.state[snapshot.active] == JobState.WAITING]"),
        Question("Which jobs may get GPUs in this round?", "offer.candidates"),
        Question("What is the name of a job?", "snapshot.jobs.id[job]"),
        Question("Which row has a job of a name?", 'int(np.flatnonzero(snapshot.jobs.id == "wide/0")[0])'),
        Question("Of which app is a job?", "snapshot.apps.id[snapshot.jobs.app[job]]"),
        Question("What weight has the user of an app?", "snapshot.users.weight[snapshot.apps.user[app]]"),
        Question("What time is it? (seconds since the arbiter's start)", "snapshot.now"),
    ),
    "Which GPUs are free, and what runs where": (
        Question("How many GPUs are on offer?", "offer.free_gpus"),
        Question(
            "How many by GPU type?",
            "np.bincount(snapshot.cluster.gpu_type[offer.gpus], minlength=len(snapshot.cluster.gpu_types))",
        ),
        Question(
            "How many by machine?",
            "np.bincount(snapshot.cluster.machine[offer.gpus], minlength=len(snapshot.cluster.machines))",
        ),
        Question("How many GPUs has a job?", "int(np.count_nonzero(snapshot.holdings.job == job))"),
        Question("Which GPUs are they?", "np.flatnonzero(snapshot.holdings.job == job)"),
        Question(
            "On which machines?", "np.unique(snapshot.cluster.machine[np.flatnonzero(snapshot.holdings.job == job)])"
        ),
        Question("Which job is on a GPU? (-1: none)", "int(snapshot.holdings.job[gpu])"),
        Question("Of which type is a GPU?", "snapshot.cluster.gpu_types[snapshot.cluster.gpu_type[gpu]]"),
        Question("When does its lease end?", "float(snapshot.holdings.ends_at[gpu])"),
        Question("May this round take the GPU away?", "bool(snapshot.holdings.protected_until[gpu] <= snapshot.now)"),
    ),
    "How do I read few jobs of a long queue": (
        Question("Which jobs wait? (a set of rows)", "snapshot.index.waiting"),
        Question("How many GPUs are free, by GPU type?", "snapshot.index.free.free"),
        Question("Which machine of a type fits 2 GPUs best? (-1: none)", "snapshot.index.free.best(0, 2)"),
        Question("Which GPUs has a job's lease?", "snapshot.index.gpus_of(job)"),
        Question(
            "Which waiting job asks for the fewest GPUs? (a row)",
            "next(snapshot.index.queue(lambda facts, job: Linear(facts.jobs.most[job]), menus, running=False)"
            ".in_order())",
        ),
    ),
    "What can a job use, and how fast is it": (
        Question("On how many GPUs can a job run?", "menus.sizes(job)"),
        Question("Which is the largest size that fits what is free?", "menus.largest_at_most(job, offer.free_gpus)"),
        Question("How fast is it on 2 GPUs? (iterations a second; NaN: not known)", "menus.rate(job, 2)"),
        Question("How much work is left? (iterations; NaN: not known)", "snapshot.iterations_left(jobs)"),
        Question("How many seconds at full size?", "snapshot.iterations_left(jobs) / menus.full_rate(jobs)"),
    ),
    "What has a job received": (
        Question("How many GPU-seconds, by GPU type?", "snapshot.ledger.jobs.received[job]"),
        Question("How long has it run, in seconds?", "float(snapshot.ledger.jobs.attained[job])"),
        Question("How long has it waited?", "float(snapshot.ledger.jobs.waited[job])"),
        Question("How many GPU-seconds has an app been leased?", "float(snapshot.ledger.apps.gpu_seconds[app])"),
    ),
    "What do I return": (
        Question(
            "How do I give whole GPUs to jobs, and say why the others wait?",
            "Allocation.to_jobs(jobs, sizes, otherwise=Reason.OUTRANKED)",
        ),
        Question("How do I give some jobs a reason of their own?", "turned_down(jobs, Reason.SHARE_USED_UP)"),
        Question(
            "How do I ask for a round in a minute?",
            "dataclasses.replace(allocation, wake_at=Seconds(snapshot.now + 60.0))",
        ),
        Question("What did I return as my memo last time?", "snapshot.memos.of(self.name, Stage.ALLOCATION)"),
        Question("How do I draw at random?", "snapshot.rng(self.name).random()"),
    ),
}
"""By part of a policy."""

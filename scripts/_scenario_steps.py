"""The page of scenario lines, from the tables that the simulator's reader uses."""

from importlib import import_module

_WHOLE = {"small": "0 to 999", "int": "from 0 up", "nodes": "nodes"}
_INTRO = """\
A scenario is a text, a line a step. `raftlog sim scenarios FILE` plays it, and `raftlog sim replay
FILE` keeps a run folder. [Named scenarios](../guides/simulate_failures.md#named-scenarios) shows
how, and the files in `sim/scenarios` are written so. Empty lines mean nothing.

## Steps

`AT KIND NAME=VALUE ... [for MS]`: so many ms after the cluster is up, a step of this kind strikes.
Every argument is wanted, in any order. `for` says when what lasts is undone; without it that is
when everything is healed, at the end. AT and MS are whole numbers from 0 to {time_max}. A file has
at most {steps_max} steps, where `load` and `reads` count as often as they repeat. A fault whose
target is not there, or already struck, does nothing, and the run says so (`struck nothing`). Faults
within the atlas strike only while a quorum is left that can repair everything. Where a text says
*in wide seeds*, other seeds do not draw the kind; a scenario may have it.

`nodes` is one of these, looked up when the step strikes, or several, joined by `+`:

| nodes | who that is |
|---|---|
| `n2` | node 2 |
| `leader:0` | the broker that leads partition 0 |
| `follower:0` | the running follower of partition 0 with the lowest number |
| `controller` | the broker that leads the metadata |
| `coordinator:0` | the broker that coordinates the consumer group g0 |
| `most-led` | the broker that leads the most partitions |
| `all` | every node |
"""


def lines():
    """Returns the body of the page."""
    schedule, bounds = (
        import_module("raftlog_sim.schedules.schedule"),
        import_module("raftlog_sim.schedules.bounds"),
    )
    kinds = import_module("raftlog_sim.schedules.step_kinds").KINDS
    found = _INTRO.format(
        time_max=f"{bounds.TIME_MAX_MS:,}", steps_max=f"{schedule.STEPS_MAX:,}"
    ).splitlines()
    for by, title in (("nemesis", "Faults and operators"), ("clients", "Clients")):
        found += ["", f"### {title}", ""]
        found += ["| kind | arguments | lasts | what happens | example |", "|---|---|---|---|---|"]
        found += [_kind(name, kind) for name, kind in kinds.items() if kind.by == by]
    return [*found, *_settings(), *_headers()]


def _kind(name, kind):
    example = import_module("raftlog_sim.schedules.step_reference").example(name)
    arguments = "<br>".join(f"`{each}`: {_form(form)}" for each, form in kind.arguments)
    lasts = "yes" if kind.lasts else ""
    return f"| `{name}` | {arguments} | {lasts} | {kind.what} | `{example}` |"


def _form(form):
    return _WHOLE.get(form) or ", ".join(f"`{word}`" for word in form.split("|"))


def _settings():
    reference = import_module("raftlog_sim.schedules.step_reference")
    bounds = import_module("raftlog_sim.schedules.bounds").BOUNDS
    options = import_module("raftlog_sim.schedules.options").SimOptions(seed=1)
    found = ["", "## Settings", "", "`set NAME VALUE` says how the cluster and its run are.", ""]
    found += ["| setting | default | allowed | meaning | example |", "|---|---|---|---|---|"]
    for name, (about, example) in reference.SETTINGS.items():
        value = getattr(options, name)
        default = ("no", "yes")[value] if isinstance(value, bool) else f"{value:,}"
        allowed = "`yes`, `no`"
        if not isinstance(value, bool):
            low, high = bounds[name]
            allowed = f"{low:,} to {high:,}"
        found.append(f"| `{name}` | {default} | {allowed} | {about} | `set {name} {example}` |")
    return found


def _headers():
    headers = import_module("raftlog_sim.schedules.step_reference").HEADERS
    found = ["", "## Other lines", "", "| line begins with | meaning | example |", "|---|---|---|"]
    found += [f"| `{head}` | {about} | `{example}` |" for head, (about, example) in headers.items()]
    found += ["", "`subject pysyncobj` makes the file a plan of another library's nodes, which has"]
    found += ["other steps: see [Run whole clusters from a seed](../guides/simulate.md)."]
    return found

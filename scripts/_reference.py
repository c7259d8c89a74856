"""The generated pages of docs/reference: each is a function from the code's own tables to text."""

import ast
import sys
import textwrap
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
NOTE = "Written by `scripts/docs` from the code; change it there."


def limits():
    """Every bound of raftlog.base.limits with its reason, section by section."""
    source = (ROOT / "raftlog" / "base" / "limits.py").read_text()
    values = vars(import_module("raftlog.base.limits"))
    lines = ["Every bound of the system, by the section of `raftlog/base/limits.py`."]
    body = ast.parse(source).body
    sections = _sections(source)
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        while sections and sections[0][0] < node.lineno:
            lines += [
                "",
                f"## {sections.pop(0)[1]}",
                "",
                "| bound | value | reason |",
                "|---|---|---|",
            ]
        name = node.target.id
        lines.append(f"| `{name}` | {_number(values[name])} | {_text_after(after)} |")
    return _page("Limits", lines)


def kafka_apis():
    """The APIs and versions that are served."""
    versions = import_module("raftlog.kafka.versions")
    return _page(
        "Kafka APIs",
        [
            "The versions that ApiVersions advertises, and from which version on a request is "
            "accepted.",
            "",
            "Ring 1: data path, groups, idempotence. Ring 2: administration. Ring 3: transactions.",
            "",
            versions.docs_table().rstrip(),
        ],
    )


def error_codes():
    """Kafka's error codes in our words."""
    codes = import_module("raftlog.kafka.error_codes").ErrorCode
    lines = ["| code | name | retriable | meaning |", "|---|---|---|---|"]
    for code in sorted(codes):
        again = "yes" if code.retriable else "no"
        lines.append(f"| {int(code)} | `{code.name}` | {again} | {code.message} |")
    return _page("Error codes", lines)


def anomalies():
    """Every class of anomaly that the judge knows."""
    classes = import_module("raftlog.verify.judging.classes").CLASSES
    lines = ["| anomaly | group | meaning | needs |", "|---|---|---|---|"]
    lines += [f"| `{c.name}` | {c.group} | {c.definition} | {c.needs} |" for c in classes]
    return _page("Anomalies", lines)


def broker_settings():
    """The settings of a broker's properties file."""
    keys = import_module("raftlog.runtime.settings.config_keys")
    lines = [
        "The file is `key = value`, with Kafka's names. A `server.properties` of Kafka works when",
        "two things are said that Kafka does not ask for or asks otherwise: the controllers",
        "(`controller.quorum.voters`) and the secret that brokers prove to each other",
        "(`raftlog.cluster.secret.file`). Every setting of Kafka 4 is in one of three classes:",
        "",
        "* **honoured**: two values make a difference that a user sees, and a test shows it;",
        "* **without effect**: any value of its kind is taken, for no record and no answer depends",
        "  on it; the broker lists at start those that its file sets;",
        "* **refused away from its default**: another value would promise what this release does",
        "  not keep, so it stops the start.",
        "",
        "A name in no list stops the start with the nearest name that there is.",
        "",
        "## Honoured",
        "",
        "| setting | default | allowed | meaning |",
        "|---|---|---|---|",
    ]
    for name, setting in keys.SETTINGS.items():
        default = f"`{setting.default}`" if setting.default else ""
        lines.append(f"| `{name}` | {default} | {_allowed(setting)} | {setting.about} |")
    lines += ["", "## Defaults of topic settings", ""]
    lines += [
        "They are in the class of their topic setting ([Topic settings](topic_settings.md)). Some",
        "change while brokers run, for one broker or for every one",
        "(`raftlog configs alter broker`); what is given so counts before the file.",
        "",
    ]
    lines += ["| setting | topic setting | class | changes while it runs |", "|---|---|---|---|"]
    dynamic = import_module("raftlog.metadata.settings.broker_settings").DYNAMIC
    for name in keys.BROKER_DEFAULT_NAMES:
        config = keys.default_of(name)
        runs = "yes" if name in dynamic else ""
        lines.append(f"| `{name}` | `{config.name}` | {config.classed.value} | {runs} |")
    lines += ["", "## Given while a broker runs", ""]
    lines += [
        "No file has them (`raftlog configs alter broker`). Without a value nothing is bound."
    ]
    lines += ["", "| setting | meaning |", "|---|---|"]
    only = import_module("raftlog.metadata.settings.broker_settings").BROKER_ONLY
    lines += [f"| `{name}` | {config.about} |" for name, config in only.items()]
    groups = import_module("raftlog.runtime.settings.kafka_settings").GROUPS
    for title, classed in (
        ("Without effect", "NO_EFFECT"),
        ("Refused away from their default", "DEFAULT_ONLY"),
    ):
        lines += ["", f"## {title}"]
        for group in groups:
            if group.classed.name == classed:
                why = group.why[0].upper() + group.why[1:] + "."
                lines += ["", *textwrap.wrap(why, 100), ""]
                lines += ["| setting | default in Kafka |", "|---|---|"]
                lines += [_setting_line(*each) for each in sorted(group.settings.items())]
    security = import_module("raftlog.runtime.settings.security_settings").NO_OPS
    lines += ["", "## Security: refused away from the value that asks for nothing", ""]
    lines += ["Every listener is plaintext, without authentication and without authorization. A"]
    lines += ["broker that is told otherwise does not start. No value is accepted, too."]
    lines += ["", "| setting | accepted value |", "|---|---|"]
    lines += [f"| `{name}` | {f'`{value}`' if value else ''} |" for name, value in security.items()]
    return _page("Broker settings", lines)


def _setting_line(name, setting):
    return f"| `{name}` | {f'`{setting[1]}`' if setting[1] else ''} |"


def topic_settings():
    """The settings of a topic."""
    configs = import_module("raftlog.metadata.settings.topic_config_table").TOPIC_CONFIGS
    lines = [
        "Every topic setting of Kafka 4 is honoured, without effect (any valid value is taken; no",
        "record and no answer depends on it), or refused away from its default, since another",
        "value would promise what this release does not keep. CreateTopics warns of values without",
        "effect. It refuses an unknown name with the nearest name that there is.",
        "",
        "| setting | class | type | default | set for a broker by | meaning, or why |",
        "|---|---|---|---|---|---|",
    ]
    for config in configs.values():
        default = f"`{config.default}`" if config.default else ""
        kind = config.kind.name.lower()
        broker = ", ".join(f"`{name}`" for name, _ in config.broker_names)
        classed = config.classed.value
        lines.append(
            f"| `{config.name}` | {classed} | {kind} | {default} | {broker} | {config.about} |"
        )
    return _page("Topic settings", lines)


def clients():
    """Returns the page of other people's clients, as `scripts/strangers` saw them."""
    return _page("Clients", import_module("outsiders.page").lines())


def command_line():
    """The help of every command, as the terminal shows it."""
    click = import_module("click")
    root = import_module("raftlog.cli.main").main
    if not isinstance(root, click.Command):
        root = import_module("raftlog.cli.main").cli
    lines = []
    _command_help(click, root, "raftlog", lines)
    _sim_help(import_module("raftlog_sim.__main__").parser(), lines)
    return _page("Command line", lines)


def scenario_steps():
    """Every line that a scenario of the simulator may have."""
    return _page("Scenario lines", import_module("_scenario_steps").lines())


# File name -> (the module it needs, its writer). A page appears with its module.
PAGES = {
    "limits.md": ("raftlog.base.limits", limits),
    "kafka_apis.md": ("raftlog.kafka.versions", kafka_apis),
    "error_codes.md": ("raftlog.kafka.error_codes", error_codes),
    "anomalies.md": ("raftlog.verify.judging.classes", anomalies),
    "broker_settings.md": ("raftlog.runtime.settings.config_keys", broker_settings),
    "topic_settings.md": ("raftlog.metadata.settings.topic_configs", topic_settings),
    "clients.md": ("outsiders.page", clients),
    "command_line.md": ("raftlog.cli.main", command_line),
    "scenario_steps.md": ("raftlog_sim.schedules.step_reference", scenario_steps),
}


def main(arguments):
    """Write what is stale, or with --check only name it."""
    stale = []
    for name, text in {**_pages(), "index.md": _index()}.items():
        path = REFERENCE / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for name in stale:
        print(f"{'stale' if '--check' in arguments else 'written'}: docs/reference/{name}")
    if stale and "--check" in arguments:
        print("run scripts/docs")
        return 1
    return 0


def _pages():
    return {name: write() for name, (module, write) in PAGES.items() if _exists(module)}


def _exists(module):
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _index():
    lines = [f"* [{_title(text)}]({name})" for name, text in _pages().items()]
    return _page("Reference", lines)


def _page(title, lines):
    return "\n".join([f"# {title}", "", NOTE, "", *lines]) + "\n"


def _title(text):
    return text.partition("\n")[0].removeprefix("# ")


def _sections(source):
    """(line, title) of each `# --- title ---` comment."""
    found = []
    for number, line in enumerate(source.splitlines(), start=1):
        if line.startswith("# --- "):
            title = line.strip("# -")
            found.append((number, title[0].upper() + title[1:]))
    return found


def _text_after(node):
    """Returns the sentence under a constant, on one line."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return ""
    return " ".join(str(node.value.value).split()).replace("|", "\\|")


def _number(value):
    """Returns a bound in the words of people."""
    if isinstance(value, int) and value >= 1024 and value % 1024 == 0:
        for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if value % size == 0:
                return f"{value // size:,} {unit}"
    return f"{value:,}" if isinstance(value, int) else f"`{value!r}`"


def _allowed(setting):
    """Returns the values of a setting in the words of people."""
    if setting.kind == "int":
        high = "" if setting.high >= 2**31 - 1 else f" to {setting.high:,}"
        return f"{setting.low:,}{high}" if high else f"from {setting.low:,}"
    if setting.kind == "flag":
        return "`true`, `false`"
    return ", ".join(f"`{choice}`" for choice in setting.choices) or "text"


def _command_help(click, command, path, lines):
    context = click.Context(command, info_name=path, help_option_names=["-h", "--help"])
    context.max_content_width = 96
    lines += [f"## {path}", "", "```text", command.get_help(context).rstrip(), "```", ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                _command_help(click, found, f"{path} {name}", lines)


def _sim_help(parser, lines):
    """Add the simulator's commands as tables, since argparse's help differs between releases of
    Python."""
    subparsers = next(each for each in parser._actions if each.dest == "command")
    for name, command in subparsers.choices.items():
        lines += [f"## raftlog sim {name}", "", _sentence(command.description)]
        lines += ["", f"    {command.epilog}", "", "| argument | meaning |", "|---|---|"]
        for action in command._actions:
            values = ", ".join(action.option_strings) or action.metavar or action.dest
            if action.choices:
                values += " " + "\\|".join(str(each) for each in action.choices)
            elif action.option_strings and action.nargs != 0:
                values += f" {action.metavar or action.dest.upper()}"
            meaning = (action.help or "").replace("%(default)s", str(action.default))
            lines.append(f"| `{values}` | {meaning} |")
        lines.append("")


def _sentence(text):
    return text[:1].upper() + text[1:] + "."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

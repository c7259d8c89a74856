"""Other people's clients: their versions, how each one is prepared, and which must run."""

import shutil
from collections.abc import Callable
from importlib.metadata import version
from typing import NamedTuple

from outsiders import preparing
from raftlog.spark import versions

KAFKA_3 = "3.9.1"
KAFKA_4 = "4.4.0"
KAFKAJS = ("kafkajs@2.2.4", "kafkajs-snappy@1.1.0", "lz4js@0.2.0", "@bokuweb/zstd-wasm@0.0.27")
CODECS = ("cramjam==2.14.0", "python-snappy==0.7.3")
FASTSTREAM = ("faststream[kafka]==0.7.8", "aiokafka==0.14.0", *CODECS)
KASKADE = "kaskade==5.1.0"
KAFKA_CONSOLE = ("kafka-console@3.1.55", "@platformatic/kafka@1.35.0")
FRANZ_GO = ("github.com/twmb/franz-go@v1.22.3", "github.com/twmb/franz-go/pkg/kadm@v1.20.0")
SARAMA = "github.com/IBM/sarama@v1.61.1"
SEGMENT = "github.com/segmentio/kafka-go@v0.4.51"
JACKSON = "com.fasterxml.jackson.core:jackson-databind:2.21.7"
SILENT_LOGGER = "org.slf4j:slf4j-nop:1.7.36"
LOGGER = "org.slf4j:slf4j-simple:1.7.36"
SILENT_SECONDS = 45
"""A program that prints nothing for so long hangs. Each call in it has a lower limit of its own."""
TOOL_STORY_SECONDS = 120
"""A story of tools is a dozen calls, and each of them starts a JVM."""


class Client(NamedTuple):
    """One column of the matrix. `needs` are programs on the PATH. `command` prepares the client and
    returns the command. `quick` says that the client must run before each change lands. `brought`
    are programs that are fetched when the PATH has none that will do. `commits` says whether the
    cluster has a group's progress when the client has read."""

    name: str
    language: str
    about: str
    command: Callable[[], list[str]]
    needs: tuple[str, ...] = ()
    quick: bool = False
    silent_seconds: int = SILENT_SECONDS
    brought: tuple[str, ...] = ()
    commits: bool = True

    @property
    def asks_for(self):
        """The programs from outside that the client needs, in the words of `--list`."""
        return [*self.needs, *(f"{name} (brought when missing)" for name in self.brought)]

    def lacks(self):
        """The programs that this machine lacks."""
        return [name for name in self.needs if shutil.which(name) is None]


def kafka_clients(version):
    """Returns the coordinates of Kafka's client, with a logger that is silent."""
    return f"org.apache.kafka:kafka-clients:{version}", SILENT_LOGGER


def java_client(version):
    """Returns the command of the program in Kafka's client of this release."""
    return preparing.java("Client.java", *kafka_clients(version), beside=("Own.java",))


def sarama(release):
    """Returns the command of sarama's program that speaks to brokers of this release."""
    beside = ("speaking.go", "sarama_own.go")
    return [*preparing.go("sarama.go", SARAMA, beside=beside), release]


def spark_connector():
    """Returns the command of Spark's connector, with the JARs for the Spark that is installed."""
    minor = versions.minor_of(version("pyspark"))
    jars = preparing.maven(*versions.TESTED[minor].connector, transitive=False)
    program, script = preparing.own_python("spark_connector.py")
    return [program, script, str(jars)]


def kafka_console():
    """Returns the command of the program that calls kafka-console."""
    return [
        *preparing.own_python("kafka_console.py"),
        preparing.npm_tool("kafka-console", *KAFKA_CONSOLE),
    ]


def kafka_tools(version):
    """Returns the command of Kafka's tools of this release."""
    program, script = preparing.own_python("tools.py")
    return [program, script, str(kafka_jars(version))]


def kafka_jars(version):
    """Returns the folder with the JARs of Kafka's tools of this release."""
    kafka = [f"org.apache.kafka:{name}:{version}" for name in ("kafka_2.13", "kafka-tools")]
    return preparing.maven(*kafka, LOGGER)


def kafka_home():
    """Returns a folder like Kafka's distribution, with the scripts that other people's tests
    start."""
    scripts = {
        "kafka-topics": "org.apache.kafka.tools.TopicCommand",
        "kafka-configs": "kafka.admin.ConfigCommand",
        "kafka-acls": "org.apache.kafka.tools.AclCommand",
    }
    return preparing.kafka_home(kafka_jars(KAFKA_4), scripts)


SUBJECTS = preparing.PROGRAMS.parents[2] / "jepsen_style_tests" / "clients" / "programs"


def subjects():
    """Returns the commands of the programs that the black-box tests drive, by client name."""
    return {
        "kafka-clients": preparing.java(
            SUBJECTS / "Subject.java", *kafka_clients(KAFKA_4), JACKSON
        ),
        "franz-go": preparing.go(SUBJECTS / "subject.go", *FRANZ_GO, beside=()),
    }


CLIENTS = [
    Client(
        "confluent-kafka",
        "Python",
        "Confluent's client for Python, on librdkafka",
        lambda: preparing.own_python("confluent.py"),
        quick=True,
    ),
    Client(
        "confluent-kafka-2.3",
        "Python",
        "the same, of 2023",
        lambda: preparing.virtual_environment("confluent.py", "confluent-kafka==2.3.0"),
    ),
    Client(
        "kafka-python",
        "Python",
        "a client in pure Python",
        lambda: preparing.own_python("kafka_python.py"),
        quick=True,
    ),
    Client(
        "aiokafka",
        "Python",
        "the asyncio client",
        lambda: preparing.own_python("aio_kafka.py"),
        quick=True,
    ),
    Client(
        "kcat",
        "C",
        "the command-line client on librdkafka",
        lambda: preparing.own_python("kcat.py"),
        ("kcat",),
        quick=True,
    ),
    Client(
        "franz-go",
        "Go",
        "a client in pure Go",
        lambda: preparing.go("franz.go", *FRANZ_GO, beside=("speaking.go", "franz_own.go")),
        quick=True,
        brought=("go",),
    ),
    Client(
        "sarama",
        "Go",
        "IBM's client, set to Kafka 3.6",
        lambda: sarama("3.6.0"),
        brought=("go",),
    ),
    Client(
        "sarama-default",
        "Go",
        "the same, set to no release",
        lambda: sarama("default"),
        brought=("go",),
    ),
    Client(
        "sarama-newest",
        "Go",
        "the same, set to the newest release that it knows",
        lambda: sarama("newest"),
        brought=("go",),
    ),
    Client(
        "kafka-go",
        "Go",
        "Segment's client",
        lambda: preparing.go("segment.go", SEGMENT, beside=("speaking.go", "segment_own.go")),
        brought=("go",),
    ),
    Client(
        "kafka-clients-3.9",
        "Java",
        "Kafka's own client",
        lambda: java_client(KAFKA_3),
        ("mvn", "javac", "java"),
    ),
    Client(
        "kafka-clients-4",
        "Java",
        "Kafka's own client",
        lambda: java_client(KAFKA_4),
        ("mvn", "javac", "java"),
    ),
    Client(
        "kafka-tools-3.9",
        "Java",
        "Kafka's own command-line tools",
        lambda: kafka_tools(KAFKA_3),
        ("mvn", "java"),
        silent_seconds=TOOL_STORY_SECONDS,
    ),
    Client(
        "kafka-tools-4",
        "Java",
        "Kafka's own command-line tools",
        lambda: kafka_tools(KAFKA_4),
        ("mvn", "java"),
        quick=True,
        silent_seconds=TOOL_STORY_SECONDS,
    ),
    Client(
        "spark-connector",
        "Spark",
        "Spark's own Kafka connector, beside our source",
        spark_connector,
        ("mvn", "java"),
        quick=True,
        silent_seconds=120,
        commits=False,  # a query keeps its progress in its checkpoint
    ),
    Client(
        "kafkajs",
        "JavaScript",
        "a client in pure JavaScript",
        lambda: preparing.npm("kafkajs.js", *KAFKAJS),
        ("node", "npm"),
    ),
    Client(
        "csharp-mono",
        "C# (Mono)",
        "an example that calls librdkafka; .NET itself was not run",
        lambda: preparing.mono("librdkafka.cs", "System.Net.Http.dll"),
        ("mcs", "mono"),
    ),
    Client(
        "faststream",
        "Python",
        "applications of publishers and subscribers, on aiokafka",
        lambda: preparing.virtual_environment("fast_stream.py", *FASTSTREAM),
    ),
    Client(
        "kafka-console",
        "JavaScript",
        "a tool of the command line on the client @platformatic/kafka",
        kafka_console,
        ("node", "npm"),
    ),
    Client(
        "kaskade",
        "User interfaces",
        "an interface in the terminal, on librdkafka: keys are pressed, tables are read",
        lambda: preparing.virtual_environment("kaskade_ui.py", KASKADE),
        commits=False,  # it reads by assignment
    ),
]
NAMES = [client.name for client in CLIENTS]
BY_NAME = {client.name: client for client in CLIENTS}

"""kcat by its flags. It has no administration: it lists, writes and reads."""

import re
import subprocess

import speaking

SECONDS = 12


def kcat(place, *arguments, text="", broker=True):
    """Returns the output of one call; when it failed, its standard error."""
    try:
        done = subprocess.run(
            ["kcat", *(["-b", place.bootstrap] if broker else []), *arguments],
            check=False,
            input=text,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired as expired:
        told = (expired.stderr or b"").decode().strip()
        # librdkafka prints an error and goes on trying: that is its answer.
        raise RuntimeError(told) if told else TimeoutError("no output") from expired
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def describe(place):
    listed = kcat(place, "-L", "-t", place.topic)
    replicas = [sorted(each.split(",")) for each in re.findall(r"replicas: ([\d,]+),", listed)]
    speaking.expect(replicas, [["1", "2", "3"]] * 2, "replicas")


def produce(*flags):
    """Returns a function that writes the feature's records with these flags."""

    def function(place):
        values = [f"{place.feature}-{number}\n" for number in range(speaking.WRITTEN_RECORDS)]
        kcat(place, "-P", "-t", place.topic, "-p", "0", *flags, text="".join(values))

    return function


def consume(place):
    found = kcat(place, "-C", "-t", place.filled, "-o", "beginning", "-e", "-q")
    speaking.expect(sorted(found.split()), speaking.FILLED_VALUES, "records")


def consume_time(place):
    flags = ["-C", "-t", place.filled, "-p", "1", "-o", f"s@{speaking.TIME}", "-c", "1", "-q"]
    speaking.expect(kcat(place, *flags).strip(), "1:5", "the first record")


def group(*flags):
    """Returns a function that reads as a member of a group."""

    def function(place):
        count = str(len(speaking.FILLED_VALUES))
        begin = ["-X", "auto.offset.reset=earliest", "-q", "-c", count]
        found = kcat(place, *begin, *flags, "-G", place.group, place.filled)
        speaking.expect(sorted(found.split()), speaking.FILLED_VALUES, "records")

    return function


def kip_848(place):
    try:
        group("-X", "group.protocol=consumer")(place)
    except RuntimeError as error:
        if "No such configuration property" in str(error):
            raise speaking.AbsentError("its librdkafka is older than the protocol") from error
        raise


NO_ADMINISTRATION = speaking.absent("kcat has no administration")
FEATURES = {
    "describe": describe,
    **{
        f"produce-{codec}": produce("-z", codec)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    },
    "acks-0": produce("-X", "acks=0"),
    "acks-1": produce("-X", "acks=1"),
    "acks-all": produce("-X", "acks=all"),
    "idempotent": produce("-X", "enable.idempotence=true"),
    "consume": consume,
    "consume-time": consume_time,
    "group": group(),
    "transaction": lambda place: produce("-X", f"transactional.id={place.group}")(place),
    "kip-848": kip_848,
}

if __name__ == "__main__":
    told = subprocess.run(["kcat", "-V"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"Version ([\d.]+).*librdkafka ([\d.]+)", told)
    version = f"{found[1]} (librdkafka {found[2]})" if found else told.strip()
    speaking.main(version, lambda name: FEATURES.get(name, NO_ADMINISTRATION))

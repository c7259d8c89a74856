"""FastStream: applications of publishers and subscribers, on aiokafka."""

import asyncio
from importlib.metadata import version

import speaking
from faststream.kafka import KafkaBroker, TopicPartition


def publish(**settings):
    """Returns a function that publishes the feature's records through a broker with these
    settings."""

    async def function(place):
        broker = KafkaBroker(place.bootstrap.split(","), logger=None, **settings)
        try:
            await broker.start()
            for number in range(speaking.WRITTEN_RECORDS):
                await broker.publish(f"{place.feature}-{number}", topic=place.topic)
        finally:
            await broker.stop()

    return function


async def read(place, *topics, **settings):
    """Returns the records that a subscriber got until it had every record of the filled topic."""
    broker = KafkaBroker(place.bootstrap.split(","), logger=None)
    found, whole = [], asyncio.Event()

    @broker.subscriber(*topics, auto_offset_reset="earliest", **settings)
    async def handle(message: str):
        found.append(message)
        if len(found) == len(speaking.FILLED_VALUES):
            whole.set()

    try:
        await broker.start()
        await whole.wait()
    finally:
        await broker.stop()
    speaking.expect(sorted(found), speaking.FILLED_VALUES, "records")


async def consume(place):
    partitions = range(speaking.FILLED_PARTITIONS)
    await read(place, partitions=[TopicPartition(place.filled, each) for each in partitions])


async def subscribe_alone(place):
    await read(place, place.filled)


async def group(place):
    await read(place, place.filled, group_id=place.group)


NO_ADMINISTRATION = speaking.absent("FastStream has no administration")
FEATURES = {
    "produce-none": publish(),
    **{
        f"produce-{codec}": publish(compression_type=codec)
        for codec in ("gzip", "snappy", "lz4", "zstd")
    },
    "acks-0": publish(acks=0),
    "acks-1": publish(acks=1),
    "acks-all": publish(acks="all"),
    "idempotent": publish(enable_idempotence=True),
    "consume": consume,
    "consume-time": speaking.absent("a subscriber of FastStream begins at an end, not at a time"),
    "subscribe-alone": subscribe_alone,
    "group": group,
    "transaction": speaking.absent("FastStream publishes without transactions of its own"),
    "kip-848": speaking.absent("aiokafka has the classic group protocol alone"),
}

if __name__ == "__main__":
    speaking.main(version("faststream"), lambda name: FEATURES.get(name, NO_ADMINISTRATION))

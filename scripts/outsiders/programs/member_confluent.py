"""A member of a consumer group on confluent-kafka: `member_confluent.py BOOTSTRAP TOPIC GROUP`.

It prints each value on a line of its own, and commits it after that. It runs until it is killed.
"""

import sys

from confluent_kafka import Consumer, KafkaException


def main():
    bootstrap, topic, group = sys.argv[1:]
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "log_level": 0,
            "session.timeout.ms": 6000,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    while True:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            print(message.value().decode(), flush=True)
            try:
                consumer.commit(message, asynchronous=False)
            except KafkaException as error:
                print(error, file=sys.stderr)


if __name__ == "__main__":
    main()

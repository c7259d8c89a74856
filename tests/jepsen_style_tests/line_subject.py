"""A client of the line protocol: librdkafka, through the black-box tests' own wrapper of it.

With `--lying` it says ok where it does not know, with the offset that would be next.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from jepsen_style_tests.clients.confluent import ConfluentClient
from jepsen_style_tests.clients.face import CallRefused, ClientSettings, Unknown


class Subject:
    client = None
    last = -1

    def open(self, request):
        fields = ("bootstrap", "idempotent", "retries", "seconds", "request_seconds")
        self.client = ConfluentClient(ClientSettings(**{name: request[name] for name in fields}))

    def send(self, request):
        self.last = self.client.send(request["topic"], request["partition"], request["value"])
        return self.last

    def assign(self, request):
        self.client.assign({(topic, at): offset for topic, at, offset in request["positions"]})

    def poll(self, request):
        return [
            [*key.split("/")[:1], int(key.split("/")[1]), offset, value]
            for key, pairs in self.client.poll(request["seconds"]).items()
            for offset, value in pairs
        ]

    def end(self, request):
        return self.client.end(request["topic"], request["partition"])


def main(lying):
    subject = Subject()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"type": "ok", "value": getattr(subject, request["f"])(request)}
        except CallRefused as error:
            answer = {"type": "fail", "error": str(error)}
        except Unknown as error:
            answer = {"type": "info", "error": str(error)}
            if lying and request["f"] == "send":
                subject.last += 1
                answer = {"type": "ok", "value": subject.last}
        print(json.dumps({"id": request["id"], **answer}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] == ["--lying"])

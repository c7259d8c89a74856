"""Judge your own application: record what its Kafka clients asked and were told.

    with raftlog.verify.recording("history.jsonl") as history:
        producer = raftlog.verify.record(Producer({...}), history)
        ...
        history.read_back(cluster.bootstrap_servers)
    history.check(report="report.html")

history.py   the history: threads, one clock, process numbers, the judge door.py      what
identifies a record wrapper.py   an object that stands for another one and behaves as it does
confluent.py, kafka_python.py, aio_kafka.py, ours.py, faults.py   one module per library
recording.py `record` and `recording`

Laws: no Kafka library is imported here; a client's library is imported already.
"""

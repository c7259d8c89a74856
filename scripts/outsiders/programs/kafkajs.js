/* kafkajs. It has gzip itself; the other codecs are plugged in, each from a package that needs no
 * compiler.
 *
 *     kafkajs.js BOOTSTRAP PREFIX FEATURE...
 *
 * speaking.py says what the lines mean, topics.py and groups.py what there is.
 */

const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");
const version = require("kafkajs/package.json").version;
const SnappyCodec = require("kafkajs-snappy");
const lz4 = require("lz4js");
const zstd = require("@bokuweb/zstd-wasm");

const WRITTEN_RECORDS = 10;
const FILLED_PARTITIONS = 3;
const FILLED_RECORDS = 20;
const TIME = 1_700_000_000_000 + 5000; // of offset 5 in every filled partition
const PATIENCE_MILLIS = 15_000;

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec;
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => zstd.init().then(() => Buffer.from(zstd.compress(encoder.buffer, 3))),
  decompress: async (buffer) => zstd.init().then(() => Buffer.from(zstd.decompress(buffer))),
});

const [bootstrap, prefix, ...features] = process.argv.slice(2);
const kafka = new Kafka({
  clientId: prefix,
  brokers: bootstrap.split(","),
  logLevel: logLevel.NOTHING,
  retry: { retries: 3 },
});

class AbsentError extends Error {}
class SilentError extends Error {}

const topicOf = (feature) => `${prefix}-${feature}`;
const filled = `${prefix}-filled`;

function absent(reason) {
  return async () => {
    throw new AbsentError(reason);
  };
}

function expect(found, wanted, what) {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) {
    throw new Error(`${what}: expected ${JSON.stringify(wanted)}, got ${JSON.stringify(found)}`);
  }
}

/** A function that calls the administration client with the feature's topic. */
function administration(call) {
  return async (feature) => {
    const admin = kafka.admin();
    await admin.connect();
    try {
      await call(admin, topicOf(feature));
    } finally {
      await admin.disconnect();
    }
  };
}

const create = administration((admin, topic) =>
  admin.createTopics({
    waitForLeaders: true,
    topics: [
      {
        topic,
        numPartitions: 2,
        replicationFactor: 3,
        configEntries: [{ name: "retention.ms", value: "3600000" }],
      },
    ],
  }),
);

const grow = administration((admin, topic) =>
  admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] }),
);

const describe = administration(async (admin, topic) => {
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
  const replicas = topics[0].partitions.map((each) => [...each.replicas].sort());
  expect(replicas, [[1, 2, 3], [1, 2, 3]], "replicas");
});

const remove = administration((admin, topic) => admin.deleteTopics({ topics: [topic] }));

const describeConfigs = administration(async (admin, topic) => {
  const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic }];
  const answer = await admin.describeConfigs({ includeSynonyms: false, resources });
  const entry = answer.resources[0].configEntries.find((each) => each.configName === "retention.ms");
  expect(entry.configValue, "3600000", "retention.ms");
});

const alterConfigs = administration((admin, topic) => {
  const configEntries = [{ name: "retention.ms", value: "7200000" }];
  const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }];
  return admin.alterConfigs({ validateOnly: false, resources });
});

const deleteRecords = administration(async (admin, topic) => {
  await admin.fetchTopicOffsets(topic); // without it, kafkajs does not know the topic's leaders
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "5" }] });
});

const reassign = administration((admin, topic) =>
  admin.alterPartitionReassignments({
    topics: [{ topic, partitionAssignment: [{ partition: 0, replicas: [2] }] }],
  }),
);

const listGroups = administration(async (admin) => {
  const listed = (await admin.listGroups()).groups.map((each) => each.groupId);
  expect(listed.includes(`${prefix}-known`), true, `the known group in ${listed}`);
});

function messagesOf(feature) {
  return Array.from({ length: WRITTEN_RECORDS }, (_, number) => ({ value: `${feature}-${number}` }));
}

function produce(sending, settings = {}) {
  return async (feature) => {
    const producer = kafka.producer(settings);
    await producer.connect();
    try {
      await producer.send({ topic: topicOf(feature), messages: messagesOf(feature), ...sending });
    } finally {
      await producer.disconnect();
    }
  };
}

async function transaction(feature) {
  const settings = { transactionalId: topicOf(feature), maxInFlightRequests: 1, idempotent: true };
  const producer = kafka.producer(settings);
  await producer.connect();
  try {
    const begun = await producer.transaction();
    await begun.send({ topic: topicOf(feature), messages: messagesOf(feature) });
    await begun.commit();
  } finally {
    await producer.disconnect();
  }
}

/** Each broker that is asked takes the fault; with one id, they count together. The connection ends
 * with the answer: kafkajs would go on to ask over one that says nothing. */
async function lostAnswer(feature) {
  const admins = (process.env.RAFTLOG_ADMIN ?? "").split(",");
  const fault = { id: topicOf(feature), do: "disconnect", executed: true, on: "Produce", times: 1 };
  for (const admin of admins) {
    const answer = await fetch(`http://${admin}/faults`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...fault, topic: topicOf(feature) }),
    });
    expect(answer.status, 201, "status");
  }
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  try {
    await producer.send({ topic: topicOf(feature), messages: messagesOf(feature), acks: -1 });
  } finally {
    await producer.disconnect();
  }
  for (const admin of admins) {
    const answer = await fetch(`http://${admin}/faults/${fault.id}`, { method: "DELETE" });
    expect((await answer.json()).removed[0].used, 1, "lost answers");
  }
}

async function group(feature) {
  const consumer = kafka.consumer({ groupId: `${topicOf(feature)}-group`, retry: { retries: 1 } });
  const wanted = [];
  for (let partition = 0; partition < FILLED_PARTITIONS; partition++) {
    for (let offset = 0; offset < FILLED_RECORDS; offset++) wanted.push(`${partition}:${offset}`);
  }
  const found = [];
  try {
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
      const each = async ({ message }) => {
        found.push(message.value.toString());
        if (found.length === wanted.length) resolve();
      };
      consumer
        .connect()
        .then(() => consumer.subscribe({ topics: [filled], fromBeginning: true }))
        .then(() => consumer.run({ eachMessage: each }))
        .catch(reject);
    });
  } finally {
    await consumer.disconnect();
  }
  expect(found.sort(), wanted.sort(), "records");
}

/** kafkajs reads as a group alone; what it has for times is a question to the broker. */
const consumeTime = administration(async (admin) => {
  const offsets = await admin.fetchTopicOffsetsByTimestamp(filled, TIME);
  expect(offsets.map((each) => each.offset), ["5", "5", "5"], "offsets");
  throw new AbsentError("kafkajs reads as a member of a group alone; the offset of a time is right");
});

const listTopics = administration(async (admin) => {
  expect((await admin.listTopics()).includes(filled), true, "the filled topic");
});

const describeCluster = administration(async (admin) => {
  const { brokers, controller, clusterId } = await admin.describeCluster();
  const nodes = brokers.map((each) => each.nodeId).sort();
  expect([nodes, nodes.includes(controller)], [[1, 2, 3], true], "nodes and controller");
  expect(clusterId.length > 0, true, "a cluster id");
});

const groupOffsets = administration(async (admin) => {
  const [{ partitions }] = await admin.fetchOffsets({ groupId: `${prefix}-known`, topics: [filled] });
  expect(partitions.find((each) => each.partition === 0).offset, "7", "offset");
});

const FEATURES = {
  create,
  grow,
  describe,
  delete: remove,
  "describe-configs": describeConfigs,
  "alter-configs": alterConfigs,
  "produce-none": produce({ compression: CompressionTypes.None }),
  "produce-gzip": produce({ compression: CompressionTypes.GZIP }),
  "produce-snappy": produce({ compression: CompressionTypes.Snappy }),
  "produce-lz4": produce({ compression: CompressionTypes.LZ4 }),
  "produce-zstd": produce({ compression: CompressionTypes.ZSTD }),
  "acks-0": produce({ acks: 0 }),
  "acks-1": produce({ acks: 1 }),
  "acks-all": produce({ acks: -1 }),
  idempotent: produce({ acks: -1 }, { idempotent: true, maxInFlightRequests: 1 }),
  consume: absent("kafkajs reads as a member of a group alone"),
  "consume-time": consumeTime,
  "delete-records": deleteRecords,
  reassign,
  "list-groups": listGroups,
  group,
  transaction,
  "kip-848": absent("kafkajs has the classic group protocol alone"),
  "lost-answer": lostAnswer,
  "list-topics": listTopics,
  "describe-cluster": describeCluster,
  "group-offsets": groupOffsets,
};

function silence() {
  return new Promise((_, reject) =>
    setTimeout(() => reject(new SilentError(`silent for ${PATIENCE_MILLIS} ms`)), PATIENCE_MILLIS),
  );
}

async function tried(feature) {
  try {
    await Promise.race([FEATURES[feature](feature), silence()]);
    return {};
  } catch (error) {
    if (error instanceof AbsentError) return { absent: error.message };
    return { error: `${error.name}: ${error.message}` };
  }
}

async function main() {
  console.log(JSON.stringify({ version }));
  for (const feature of features) {
    console.log(JSON.stringify({ feature, ...(await tried(feature)) }));
  }
  process.exit(0);
}

main();

/**
 * A member of a consumer group on kafkajs: `member_kafkajs.js BOOTSTRAP TOPIC GROUP`.
 *
 * It says each value on a line of its own, and commits it after that. It runs until it is killed.
 */
"use strict";
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, topic, groupId] = process.argv.slice(2);
const SESSION_MILLIS = 6000;

async function main() {
  const retry = { initialRetryTime: 200, maxRetryTime: 1000, retries: 30 };
  const kafka = new Kafka({ brokers: bootstrap.split(","), logLevel: logLevel.NOTHING, retry });
  const consumer = kafka.consumer({
    groupId,
    sessionTimeout: SESSION_MILLIS,
    rebalanceTimeout: 2 * SESSION_MILLIS,
    heartbeatInterval: SESSION_MILLIS / 5,
    metadataMaxAge: 5000,
    retry: { ...retry, restartOnFailure: async () => true },
  });
  consumer.on(consumer.events.CRASH, ({ payload }) => console.error(String(payload.error)));
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommitInterval: 200,
    eachMessage: async ({ message }) => console.log(message.value.toString()),
  });
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});

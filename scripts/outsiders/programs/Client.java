/* Kafka's own client for Java, any release from 3.9 on.
 *
 *     Client BOOTSTRAP PREFIX FEATURE...
 *
 * speaking.py says what the lines mean, topics.py which topics there are.
 */

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Client {
    static final int WRITTEN_RECORDS = 10;
    static final int FILLED_PARTITIONS = 3;
    static final int FILLED_RECORDS = 20;
    static final long KNOWN_OFFSET = 7;
    static final long TIME = 1_700_000_000_000L + 5000; // of offset 5 in every filled partition
    static final long PATIENCE_MILLIS = 12_000;

    /** One feature; what it throws is the client's own answer. */
    interface Function {
        void run(Place place) throws Exception;
    }

    /** Where the program works, and the feature that it tries. */
    record Place(String bootstrap, String prefix, String feature) {
        String topic() {
            return prefix + "-" + feature;
        }

        String filled() {
            return prefix + "-filled";
        }

        String work() {
            return prefix + "-work";
        }

        String group() {
            return topic() + "-group";
        }

        /** A group without members that has committed `KNOWN_OFFSET`. */
        String known() {
            return prefix + "-known";
        }

        Map<String, Object> settings(Map<String, Object> more) {
            Map<String, Object> all = new HashMap<>(more);
            all.put("bootstrap.servers", bootstrap);
            return all;
        }
    }

    /** The release has no such feature; the text says what it lacks. */
    static class Absent extends Exception {
        Absent(String text) {
            super(text);
        }
    }

    static class Silent extends Exception {
        Silent(String text) {
            super(text);
        }
    }

    public static void main(String[] arguments) {
        say("version", version(), null, null);
        for (String feature : List.of(arguments).subList(2, arguments.length)) {
            try {
                features().get(feature).run(new Place(arguments[0], arguments[1], feature));
                say("feature", feature, null, null);
            } catch (Absent absent) {
                say("feature", feature, "absent", absent.getMessage());
            } catch (Throwable thrown) {
                say("feature", feature, "error", told(thrown));
            }
        }
        System.exit(0); // a client that hangs has threads of its own
    }

    /** The release in the name of the client's own JAR: no class tells it in every release. */
    static String version() {
        var source = KafkaProducer.class.getProtectionDomain().getCodeSource().getLocation();
        return source.getPath().replaceAll(".*/kafka-clients-(.*)\\.jar", "$1");
    }

    static Map<String, Function> features() {
        Map<String, Function> all = new HashMap<>();
        all.put("create", Client::create);
        all.put("grow", Client::grow);
        all.put("describe", Client::describe);
        all.put("delete", Client::delete);
        all.put("describe-configs", Client::describeConfigs);
        all.put("alter-configs", Client::alterConfigs);
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            all.put("produce-" + codec, produce(Map.of("compression.type", codec)));
        }
        for (String acks : List.of("0", "1", "all")) {
            all.put("acks-" + acks, produce(Map.of("acks", acks, "enable.idempotence", false)));
        }
        all.put("idempotent", produce(Map.of("enable.idempotence", true)));
        all.put("consume", Client::consume);
        all.put("consume-time", Client::consumeTime);
        all.put("delete-records", Client::deleteRecords);
        all.put("reassign", Client::reassign);
        all.put("list-groups", Client::listGroups);
        all.put("group", place -> group(place, Map.of()));
        all.put("transaction", Client::transaction);
        all.put("kip-848", place -> group(place, Map.of("group.protocol", "consumer")));
        all.putAll(Own.features());
        return all;
    }

    // --- administration ---

    static Admin admin(Place place) {
        return Admin.create(place.settings(Map.of(
            "default.api.timeout.ms", (int) PATIENCE_MILLIS, "request.timeout.ms", 8000)));
    }

    static void create(Place place) throws Exception {
        NewTopic topic = new NewTopic(place.topic(), 2, (short) 3);
        topic.configs(Map.of("retention.ms", "3600000"));
        try (Admin admin = admin(place)) {
            admin.createTopics(List.of(topic)).all().get();
        }
    }

    static void grow(Place place) throws Exception {
        try (Admin admin = admin(place)) {
            admin.createPartitions(Map.of(place.topic(), NewPartitions.increaseTo(3))).all().get();
        }
    }

    static void describe(Place place) throws Exception {
        try (Admin admin = admin(place)) {
            var topics = admin.describeTopics(List.of(place.topic())).allTopicNames().get();
            var replicas = topics.get(place.topic()).partitions().stream()
                .map(each -> each.replicas().stream().map(Node::id).sorted().toList()).toList();
            expect(replicas, List.of(List.of(1, 2, 3), List.of(1, 2, 3)), "replicas");
        }
    }

    static void delete(Place place) throws Exception {
        try (Admin admin = admin(place)) {
            admin.deleteTopics(List.of(place.topic())).all().get();
        }
    }

    static ConfigResource resource(Place place) {
        return new ConfigResource(ConfigResource.Type.TOPIC, place.topic());
    }

    static void describeConfigs(Place place) throws Exception {
        try (Admin admin = admin(place)) {
            var found = admin.describeConfigs(List.of(resource(place))).all().get();
            String retention = found.get(resource(place)).get("retention.ms").value();
            expect(retention, "3600000", "retention.ms");
        }
    }

    static void alterConfigs(Place place) throws Exception {
        var change = new AlterConfigOp(
            new ConfigEntry("retention.ms", "7200000"), AlterConfigOp.OpType.SET);
        try (Admin admin = admin(place)) {
            Map<ConfigResource, Collection<AlterConfigOp>> changes =
                Map.of(resource(place), List.of(change));
            admin.incrementalAlterConfigs(changes).all().get();
        }
    }

    static void deleteRecords(Place place) throws Exception {
        var partition = new TopicPartition(place.topic(), 0);
        try (Admin admin = admin(place)) {
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(5))).all().get();
        }
    }

    static void reassign(Place place) throws Exception {
        var partition = new TopicPartition(place.topic(), 0);
        var move = Optional.of(new NewPartitionReassignment(List.of(2)));
        try (Admin admin = admin(place)) {
            admin.alterPartitionReassignments(Map.of(partition, move)).all().get();
        }
    }

    static void listGroups(Place place) throws Exception {
        try (Admin admin = admin(place)) {
            var listed = admin.listConsumerGroups().all().get();
            boolean known = listed.stream().anyMatch(each -> each.groupId().equals(place.known()));
            expect(known, true, "the known group in " + listed);
        }
    }

    // --- producers ---

    static KafkaProducer<String, String> producer(Place place, Map<String, Object> more) {
        Map<String, Object> settings = place.settings(more);
        settings.put("delivery.timeout.ms", (int) PATIENCE_MILLIS);
        settings.put("request.timeout.ms", 8000);
        settings.put("max.block.ms", 10000);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static Function produce(Map<String, Object> settings) {
        return place -> {
            try (var producer = producer(place, settings)) {
                write(producer, place);
            }
        };
    }

    static void write(KafkaProducer<String, String> producer, Place place) throws Exception {
        List<Future<?>> sent = new ArrayList<>();
        for (int number = 0; number < WRITTEN_RECORDS; number++) {
            String value = place.feature() + "-" + number;
            sent.add(producer.send(new ProducerRecord<>(place.topic(), value)));
        }
        producer.flush();
        for (Future<?> each : sent) {
            each.get();
        }
    }

    static void transaction(Place place) throws Exception {
        try (var producer = producer(place, Map.of("transactional.id", place.group()))) {
            producer.initTransactions();
            producer.beginTransaction();
            write(producer, place);
            producer.commitTransaction();
        }
    }

    // --- consumers ---

    static KafkaConsumer<String, String> consumer(Place place, Map<String, Object> more) {
        Map<String, Object> settings = place.settings(more);
        settings.putIfAbsent("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        settings.put("default.api.timeout.ms", (int) PATIENCE_MILLIS);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static List<String> read(KafkaConsumer<String, String> reader, int count) throws Silent {
        List<String> values = new ArrayList<>();
        long deadline = System.nanoTime() + PATIENCE_MILLIS * 1_000_000;
        while (values.size() < count && System.nanoTime() < deadline) {
            for (ConsumerRecord<String, String> each : reader.poll(Duration.ofMillis(300))) {
                values.add(each.value());
            }
        }
        if (values.isEmpty()) {
            throw new Silent("no record came, and no error");
        }
        return values;
    }

    static void readAll(KafkaConsumer<String, String> reader) throws Silent {
        List<String> wanted = new ArrayList<>();
        for (int partition = 0; partition < FILLED_PARTITIONS; partition++) {
            for (int offset = 0; offset < FILLED_RECORDS; offset++) {
                wanted.add(partition + ":" + offset);
            }
        }
        List<String> found = read(reader, wanted.size());
        Collections.sort(found);
        Collections.sort(wanted);
        expect(found, wanted, "records");
    }

    static List<TopicPartition> filled(Place place) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (int partition = 0; partition < FILLED_PARTITIONS; partition++) {
            partitions.add(new TopicPartition(place.filled(), partition));
        }
        return partitions;
    }

    static void consume(Place place) throws Exception {
        List<TopicPartition> partitions = filled(place);
        try (var reader = consumer(place, Map.of())) {
            reader.assign(partitions);
            reader.seekToBeginning(partitions);
            readAll(reader);
        }
    }

    static void consumeTime(Place place) throws Exception {
        var partition = new TopicPartition(place.filled(), 1);
        try (var reader = consumer(place, Map.of())) {
            reader.assign(List.of(partition));
            long offset = reader.offsetsForTimes(Map.of(partition, TIME)).get(partition).offset();
            reader.seek(partition, offset);
            expect(read(reader, 1).get(0), "1:5", "the first record");
        }
    }

    static void group(Place place, Map<String, Object> more) throws Exception {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("group.id", place.group());
        try (var reader = consumer(place, settings)) {
            reader.subscribe(List.of(place.filled()));
            readAll(reader);
            reader.commitSync();
        }
    }

    // --- lines ---

    static void expect(Object found, Object wanted, String what) {
        if (!found.equals(wanted)) {
            throw new IllegalStateException(what + ": expected " + wanted + ", got " + found);
        }
    }

    static String told(Throwable thrown) {
        Throwable cause = thrown;
        while (cause instanceof ExecutionException && cause.getCause() != null) {
            cause = cause.getCause();
        }
        String text = cause.getClass().getSimpleName() + ": " + cause.getMessage();
        return cause instanceof Silent ? "silent for 12 s: " + cause.getMessage() : text;
    }

    static void say(String key, String value, String key2, String value2) {
        String more = key2 == null ? "" : ", " + quoted(key2) + ": " + quoted(value2);
        System.out.println("{" + quoted(key) + ": " + quoted(value) + more + "}");
        System.out.flush();
    }

    static String quoted(String text) {
        StringBuilder all = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') {
                all.append('\\').append(each);
            } else {
                all.append(each < ' ' ? ' ' : each);
            }
        }
        return all.append('"').toString();
    }
}

/* Kafka's own client for Java, any release from 3.9 on.
 *
 *     Client BOOTSTRAP PREFIX FEATURE...
 *
 * speaking.py says what the lines mean, topics.py which topics there are.
 */

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.RecordTooLargeException;
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
        all.put("describe-by-id", Client::describeById);
        all.put("delete-by-id", Client::deleteById);
        all.put("describe-cluster", Client::describeCluster);
        all.put("max-timestamp", Client::maxTimestamp);
        all.put("elect-leaders", Client::electLeaders);
        all.put("describe-producers", Client::describeProducers);
        all.put("describe-log-dirs", asks(admin -> admin.describeLogDirs(List.of(1)).allDescriptions()));
        all.put("describe-quorum", asks(admin -> admin.describeMetadataQuorum().quorumInfo()));
        all.put("describe-features", asks(admin -> admin.describeFeatures().featureMetadata()));
        all.put("describe-groups", Client::describeGroups);
        all.put("group-offsets", Client::groupOffsets);
        all.put("record", Client::record);
        all.put("too-large", Client::tooLarge);
        all.put("out-of-range", Client::outOfRange);
        all.put("lost-answer", Client::lostAnswer);
        return all;
    }

    // --- what this client alone is asked ---

    /** One question to the cluster. */
    interface Question {
        KafkaFuture<?> ask(Admin admin);
    }

    static Function asks(Question question) {
        return place -> {
            try (Admin admin = admin(place)) {
                question.ask(admin).get();
            }
        };
    }

    static Uuid idOf(Admin admin, String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId();
    }

    static void describeById(Place place) throws Exception {
        try (Admin admin = admin(place)) {
            Uuid id = idOf(admin, place.filled());
            var ids = TopicCollection.ofTopicIds(List.of(id));
            expect(admin.describeTopics(ids).allTopicIds().get().get(id).name(), place.filled(), "name");
        }
    }

    static void deleteById(Place place) throws Exception {
        try (Admin admin = admin(place)) {
            admin.createTopics(List.of(new NewTopic(place.topic(), 1, (short) 3))).all().get();
            var ids = TopicCollection.ofTopicIds(List.of(idOf(admin, place.topic())));
            admin.deleteTopics(ids).all().get();
            expect(admin.listTopics().names().get().contains(place.topic()), false, "still listed");
        }
    }

    static void describeCluster(Place place) throws Exception {
        try (Admin admin = admin(place)) {
            var nodes = admin.describeCluster().nodes().get();
            expect(nodes.stream().map(Node::id).sorted().toList(), List.of(1, 2, 3), "nodes");
            expect(admin.describeCluster().clusterId().get().isEmpty(), false, "no cluster id");
        }
    }

    static void maxTimestamp(Place place) throws Exception {
        var partition = new TopicPartition(place.filled(), 1);
        try (Admin admin = admin(place)) {
            var found = admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).all().get();
            expect(found.get(partition).offset(), (long) FILLED_RECORDS - 1, "offset");
        }
    }

    /** Of one partition: among all of them are some that other clients move. */
    static void electLeaders(Place place) throws Exception {
        var partition = new TopicPartition(place.filled(), 0);
        try (Admin admin = admin(place)) {
            var told = admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get();
            Optional<Throwable> error = told.get(partition);
            if (error.isPresent()) {
                expect(error.get().getClass(), ElectionNotNeededException.class, "error");
            }
        }
    }

    static void describeProducers(Place place) throws Exception {
        var partition = new TopicPartition(place.filled(), 1);
        try (Admin admin = admin(place)) {
            var found = admin.describeProducers(List.of(partition)).all().get().get(partition);
            expect(found.activeProducers().size(), 1, "producers");
        }
    }

    static void record(Place place) throws Exception {
        var written = new ProducerRecord<String, String>(place.work(), 0, TIME, "key", null);
        written.headers().add("none", null).add("some", new byte[] {1, 2});
        try (var producer = producer(place, Map.of())) {
            producer.send(written).get();
        }
        var partition = new TopicPartition(place.work(), 0);
        try (var reader = consumer(place, Map.of())) {
            reader.assign(List.of(partition));
            reader.seekToBeginning(List.of(partition));
            ConsumerRecord<String, String> found = reader.poll(Duration.ofSeconds(10)).iterator().next();
            expect(found.key() + found.timestamp(), "key" + TIME, "key and timestamp");
            expect(found.value() == null, true, "a value");
            expect(found.headers(), written.headers(), "headers");
        }
    }

    static void tooLarge(Place place) throws Exception {
        Map<String, Object> settings = Map.of("max.request.size", 9_000_000);
        try (var producer = producer(place, settings)) {
            producer.send(new ProducerRecord<>(place.work(), "x".repeat(2_000_000))).get();
        } catch (ExecutionException refused) {
            if (refused.getCause() instanceof RecordTooLargeException) {
                return;
            }
            throw refused;
        }
        throw new IllegalStateException("a record of 2 MB was accepted");
    }

    /** Each broker that is asked takes the fault; with one id, they count together. */
    static void lostAnswer(Place place) throws Exception {
        String id = place.topic().replace('.', '-');
        String fault = """
            {"id": "%s", "do": "drop_response", "on": "Produce", "topic": "%s", "times": 1}
            """.formatted(id, place.topic());
        askAll("POST", "/faults", fault, 201, "\"used\": 0");
        Map<String, Object> impatient = Map.of("enable.idempotence", true, "acks", "all");
        Map<String, Object> settings = place.settings(impatient);
        settings.put("delivery.timeout.ms", (int) PATIENCE_MILLIS);
        settings.put("request.timeout.ms", 1000);
        try (var producer = new KafkaProducer<>(
                settings, new StringSerializer(), new StringSerializer())) {
            write(producer, place);
        }
        askAll("DELETE", "/faults/" + id, "", 200, "\"used\": 1");
    }

    static void askAll(String method, String path, String body, int status, String holds)
            throws Exception {
        for (String admin : System.getenv("RAFTLOG_ADMIN").split(",")) {
            var request = HttpRequest.newBuilder(URI.create("http://" + admin + path))
                .header("Content-Type", "application/json")
                .method(method, HttpRequest.BodyPublishers.ofString(body))
                .build();
            var answer = HttpClient.newHttpClient()
                .send(request, HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() != status || !answer.body().contains(holds)) {
                throw new IllegalStateException(answer.statusCode() + " " + answer.body());
            }
        }
    }

    static void outOfRange(Place place) throws Exception {
        var partition = new TopicPartition(place.filled(), 1);
        try (var reader = consumer(place, Map.of("auto.offset.reset", "none"))) {
            reader.assign(List.of(partition));
            reader.seek(partition, 1_000_000);
            reader.poll(Duration.ofSeconds(10));
        } catch (OffsetOutOfRangeException refused) {
            return;
        }
        throw new Silent("no error for a position behind the end");
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

    static void describeGroups(Place place) throws Exception {
        try (Admin admin = admin(place)) {
            var found = admin.describeConsumerGroups(List.of(place.known())).all().get();
            expect(found.get(place.known()).members().size(), 0, "members");
        }
    }

    static void groupOffsets(Place place) throws Exception {
        try (Admin admin = admin(place)) {
            var found = admin.listConsumerGroupOffsets(place.known());
            var offset = found.partitionsToOffsetAndMetadata().get().get(new TopicPartition(place.filled(), 0));
            expect(offset.offset(), KNOWN_OFFSET, "offset");
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

    static void consume(Place place) throws Exception {
        List<TopicPartition> partitions = new ArrayList<>();
        for (int partition = 0; partition < FILLED_PARTITIONS; partition++) {
            partitions.add(new TopicPartition(place.filled(), partition));
        }
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

/* What Kafka's own client for Java alone is asked, beside the features of every client. */

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.serialization.StringSerializer;

/** The features, as a part of the program: what it has is at hand here. */
class Own extends Client {
    static Map<String, Function> features() {
        Map<String, Function> all = new HashMap<>();
        all.put("describe-by-id", Own::describeById);
        all.put("delete-by-id", Own::deleteById);
        all.put("describe-cluster", Own::describeCluster);
        all.put("max-timestamp", Own::maxTimestamp);
        all.put("elect-leaders", Own::electLeaders);
        all.put("describe-producers", Own::describeProducers);
        all.put("describe-log-dirs", asks(admin -> admin.describeLogDirs(List.of(1)).allDescriptions()));
        all.put("describe-quorum", asks(admin -> admin.describeMetadataQuorum().quorumInfo()));
        all.put("describe-features", asks(admin -> admin.describeFeatures().featureMetadata()));
        all.put("describe-groups", Own::describeGroups);
        all.put("group-offsets", Own::groupOffsets);
        all.put("record", Own::record);
        all.put("too-large", Own::tooLarge);
        all.put("out-of-range", Own::outOfRange);
        all.put("lost-answer", Own::lostAnswer);
        all.put("validate-only", Own::validateOnly);
        all.put("grow-assigned", Own::growAssigned);
        all.put("shrink", Own::shrink);
        all.put("authorized-operations", Own::authorizedOperations);
        all.put("list-reassignments", asks(admin -> admin.listPartitionReassignments().reassignments()));
        all.put("earliest-pending-upload", Own::earliestPendingUpload);
        all.put("client-instance-id", Own::clientInstanceId);
        all.put("auto-create", Own::autoCreate);
        all.put("read-committed", place -> assign(place, Map.of("isolation.level", "read_committed")));
        all.put("assign-group", place -> assign(place, Map.of("group.id", place.group())));
        all.put("assign-kip-848", place ->
            assign(place, Map.of("group.id", place.group(), "group.protocol", "consumer")));
        return all;
    }

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

    static void validateOnly(Place place) throws Exception {
        var topics = List.of(new NewTopic(place.topic(), 3, (short) 3));
        try (Admin admin = admin(place)) {
            admin.createTopics(topics, new CreateTopicsOptions().validateOnly(true)).all().get();
            expect(admin.listTopics().names().get().contains(place.topic()), false, "made");
        }
    }

    /** The second partition has its replicas in this order: broker 3 is to lead it. */
    static void growAssigned(Place place) throws Exception {
        var two = NewPartitions.increaseTo(2, List.of(List.of(3, 2, 1)));
        try (Admin admin = admin(place)) {
            admin.createTopics(List.of(new NewTopic(place.topic(), 1, (short) 3))).all().get();
            admin.createPartitions(Map.of(place.topic(), two)).all().get();
            var told = admin.describeTopics(List.of(place.topic())).allTopicNames().get();
            var replicas = told.get(place.topic()).partitions().get(1).replicas();
            expect(replicas.stream().map(Node::id).toList(), List.of(3, 2, 1), "replicas");
        }
    }

    static void shrink(Place place) throws Exception {
        try (Admin admin = admin(place)) {
            admin.createPartitions(Map.of(place.work(), NewPartitions.increaseTo(2))).all().get();
        } catch (ExecutionException refused) {
            if (refused.getCause() instanceof InvalidPartitionsException) {
                return;
            }
            throw refused;
        }
        throw new IllegalStateException("three partitions became two");
    }

    static void authorizedOperations(Place place) throws Exception {
        var cluster = new DescribeClusterOptions().includeAuthorizedOperations(true);
        var topics = new DescribeTopicsOptions().includeAuthorizedOperations(true);
        try (Admin admin = admin(place)) {
            var allowed = admin.describeCluster(cluster).authorizedOperations().get();
            expect(allowed.contains(AclOperation.CREATE), true, "CREATE in the cluster");
            var told = admin.describeTopics(List.of(place.filled()), topics).allTopicNames().get();
            allowed = told.get(place.filled()).authorizedOperations();
            expect(allowed.contains(AclOperation.READ), true, "READ of the topic");
        }
    }

    /** A log that lies on the brokers' disks alone has nothing to upload: its offset is -1. */
    static void earliestPendingUpload(Place place) throws Exception {
        OffsetSpec spec;
        try {
            spec = (OffsetSpec) OffsetSpec.class.getMethod("earliestPendingUpload").invoke(null);
        } catch (NoSuchMethodException none) {
            throw new Absent("this release has no earliestPendingUpload");
        }
        var partition = new TopicPartition(place.filled(), 1);
        try (Admin admin = admin(place)) {
            var found = admin.listOffsets(Map.of(partition, spec)).all().get();
            expect(found.get(partition).offset(), -1L, "offset");
        }
    }

    /** The client has no word for brokers that take no metrics: it waits, and returns nothing. */
    static void clientInstanceId(Place place) throws Exception {
        try (var reader = consumer(place, Map.of())) {
            if (reader.clientInstanceId(Duration.ofSeconds(5)) == null) {
                throw new UnsupportedOperationException("no id came within 5 s: "
                    + "the brokers take no metrics of clients, which is not supported yet");
            }
        }
    }

    static void autoCreate(Place place) throws Exception {
        try (var producer = producer(place, Map.of())) {
            expect(producer.send(new ProducerRecord<>(place.topic(), "x")).get().offset(), 0L, "offset");
        }
    }

    /** Without a seek: the reader begins where its group, or its reset, says. */
    static void assign(Place place, Map<String, Object> settings) throws Exception {
        try (var reader = consumer(place, settings)) {
            reader.assign(filled(place));
            readAll(reader);
        }
    }
}

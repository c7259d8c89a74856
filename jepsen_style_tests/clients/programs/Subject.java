/* Kafka's own client for Java, driven by lines of JSON: clients/lines.py says what they mean. */

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Subject {
    static final ObjectMapper JSON = new ObjectMapper();

    KafkaProducer<String, String> producer;
    KafkaConsumer<String, String> consumer;
    Duration patience;

    public static void main(String[] arguments) throws Exception {
        Subject subject = new Subject();
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            JsonNode request = JSON.readTree(line);
            try {
                subject.take(request);
            } catch (Exception error) {
                failed(request, error);
            }
        }
        // The input's end is a crash: nothing that is in flight is waited for.
        Runtime.getRuntime().halt(0);
    }

    void take(JsonNode request) {
        switch (request.get("f").asText()) {
            case "open" -> open(request);
            case "send" -> send(request);
            case "assign" -> assign(request);
            case "poll" -> poll(request);
            case "end" -> end(request);
            default -> throw new IllegalArgumentException("no such request: " + request);
        }
    }

    void open(JsonNode request) {
        int call = (int) (request.get("seconds").asDouble() * 1000);
        int attempt = (int) (request.get("request_seconds").asDouble() * 1000);
        patience = Duration.ofMillis(call);
        Map<String, Object> shared = new HashMap<>();
        shared.put("bootstrap.servers", request.get("bootstrap").asText());
        shared.put("reconnect.backoff.max.ms", 500);
        shared.put("enable.metrics.push", false);

        Map<String, Object> producing = new HashMap<>(shared);
        producing.put("acks", "all");
        producing.put("enable.idempotence", request.get("idempotent").asBoolean());
        producing.put("retries", request.get("retries").asBoolean() ? Integer.MAX_VALUE : 0);
        producing.put("linger.ms", 0);
        producing.put("request.timeout.ms", attempt);
        producing.put("delivery.timeout.ms", Math.max(call, attempt));
        producing.put("max.block.ms", call);
        producing.put("metadata.max.age.ms", 5000);
        producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer());

        Map<String, Object> consuming = new HashMap<>(shared);
        consuming.put("enable.auto.commit", false);
        consuming.put("auto.offset.reset", "none");
        consuming.put("fetch.max.wait.ms", 50);
        consuming.put("request.timeout.ms", attempt + 500);
        consuming.put("default.api.timeout.ms", Math.max(call, attempt + 500));
        consuming.put("metadata.max.age.ms", 2000);
        consumer =
                new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer());
        ok(request, null);
    }

    /** Answers from the producer's own thread. A program that cannot know says info. */
    void send(JsonNode request) {
        ProducerRecord<String, String> record =
                new ProducerRecord<>(
                        request.get("topic").asText(),
                        request.get("partition").asInt(),
                        null,
                        request.get("value").asText());
        producer.send(
                record,
                (metadata, error) -> {
                    if (error == null) {
                        ok(request, metadata.offset());
                    } else {
                        failed(request, error);
                    }
                });
    }

    void assign(JsonNode request) {
        Map<TopicPartition, Long> positions = new LinkedHashMap<>();
        for (JsonNode each : request.get("positions")) {
            positions.put(
                    new TopicPartition(each.get(0).asText(), each.get(1).asInt()),
                    each.get(2).asLong());
        }
        consumer.assign(positions.keySet());
        positions.forEach(consumer::seek);
        ok(request, null);
    }

    void poll(JsonNode request) {
        Duration wait = Duration.ofMillis((long) (request.get("seconds").asDouble() * 1000));
        List<List<Object>> found = new ArrayList<>();
        for (ConsumerRecord<String, String> each : consumer.poll(wait)) {
            found.add(List.of(each.topic(), each.partition(), each.offset(), each.value()));
        }
        ok(request, found);
    }

    void end(JsonNode request) {
        TopicPartition place =
                new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
        ok(request, consumer.endOffsets(List.of(place), patience).get(place));
    }

    static void ok(JsonNode request, Object value) {
        say(request, "ok", "value", value);
    }

    /** Only what the client refuses by itself is certain. All else, a timeout too, is not. */
    static void failed(JsonNode request, Exception error) {
        String type = error instanceof RecordTooLargeException ? "fail" : "info";
        say(request, type, "error", error.toString());
    }

    static synchronized void say(JsonNode request, String type, String name, Object value) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", request.get("id"));
        answer.put("type", type);
        answer.put(name, value);
        System.out.println(JSON.valueToTree(answer));
        System.out.flush();
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java client as a program: a JSON job per line of stdin, a JSON response per line of stdout.
 * The jobs are described in tests/support/kafka_clients/program.py.
 */
public final class KafkaClient {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode response = JSON.createObjectNode();
            try {
                run(JSON.readTree(line), response);
            } catch (Exception failure) {
                response = JSON.createObjectNode();
                describe(failure, response.putObject("error"));
            }
            out.println(JSON.writeValueAsString(response));
        }
    }

    private static void run(JsonNode job, ObjectNode response) throws Exception {
        String op = job.get("op").asText();
        switch (op) {
            case "produce" -> produce(job, response);
            case "consume" -> consume(job, response);
            case "consume_group" -> consumeGroup(job, response);
            case "offset_for_time" -> offsetForTime(job, response);
            case "create_topic", "delete_topic", "topic_configs" -> administer(op, job, response);
            default -> {
                if (!Transactions.run(op, job, response)
                        && !Members.run(op, job, response)
                        && !Streams.run(op, job, response)
                        && !TransactionAdmin.run(op, job, response)) {
                    throw new IllegalArgumentException("unknown job: " + op);
                }
            }
        }
    }

    /** Writes the broker's error code, or -1 (UNKNOWN_SERVER_ERROR) for an error of the client. */
    private static void describe(Throwable failure, ObjectNode error) {
        Throwable cause = failure;
        while ((cause instanceof ExecutionException || cause instanceof CompletionException)
                && cause.getCause() != null) {
            cause = cause.getCause();
        }
        // A send that waits in vain for a topic's metadata carries the broker's error as its cause.
        if (cause instanceof TimeoutException && cause.getCause() != null) {
            cause = cause.getCause();
        }
        error.put("code", Errors.forException(cause).code());
        error.put("message", cause.toString());
    }

    static Map<String, Object> common(JsonNode job) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", job.get("bootstrap").asText());
        return config;
    }

    static byte[] bytes(JsonNode node) throws Exception {
        return node.isNull() ? null : node.binaryValue();
    }

    static ProducerRecord<byte[], byte[]> record(String topic, JsonNode fields) throws Exception {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : fields.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        return new ProducerRecord<>(
                topic,
                fields.get("partition").asInt(),
                fields.get("timestamp").asLong(),
                bytes(fields.get("key")),
                bytes(fields.get("value")),
                headers);
    }

    private static void produce(JsonNode job, ObjectNode response) throws Exception {
        Map<String, Object> config = common(job);
        config.put("compression.type", job.get("codec").asText());
        config.put("acks", job.get("acks").asText());
        config.put("enable.idempotence", job.get("idempotent").asBoolean());
        if (!job.get("idempotent").asBoolean()) {
            config.put("max.in.flight.requests.per.connection", 1); // or a retry changes the order
        }
        config.put("max.block.ms", job.get("timeout_ms").asInt());
        config.put("linger.ms", 5);
        config.put("max.request.size", 4 << 20);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode fields : job.get("records")) {
                sent.add(producer.send(record(job.get("topic").asText(), fields)));
            }
            producer.flush();
            ArrayNode offsets = response.putArray("offsets");
            for (Future<RecordMetadata> result : sent) {
                RecordMetadata metadata = result.get();
                offsets.add(metadata.hasOffset() ? metadata.offset() : -1);
            }
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(JsonNode job, Map<String, Object> more) {
        Map<String, Object> config = common(job);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        config.put("fetch.max.wait.ms", 10);
        config.putAll(more);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Adds polled records to those of a response. */
    static void add(ConsumerRecords<byte[], byte[]> polled, ArrayNode records) {
        for (ConsumerRecord<byte[], byte[]> record : polled) {
            ObjectNode fields = records.addObject();
            fields.put("partition", record.partition());
            fields.put("offset", record.offset());
            fields.put("timestamp", record.timestamp());
            fields.put("key", record.key());
            fields.put("value", record.value());
            ArrayNode headers = fields.putArray("headers");
            for (Header header : record.headers()) {
                headers.addArray().add(header.key()).add(header.value());
            }
        }
    }

    static void read(KafkaConsumer<byte[], byte[]> consumer, JsonNode job, ObjectNode response) {
        ArrayNode records = response.putArray("records");
        long deadline = System.nanoTime() + job.get("timeout_ms").asLong() * 1_000_000;
        while (records.size() < job.get("count").asInt()) {
            if (System.nanoTime() > deadline) {
                throw new TimeoutException("only " + records.size() + " records came");
            }
            add(consumer.poll(Duration.ofMillis(100)), records);
        }
    }

    static List<TopicPartition> partitions(JsonNode job) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (JsonNode partition : job.get("partitions")) {
            partitions.add(new TopicPartition(job.get("topic").asText(), partition.asInt()));
        }
        return partitions;
    }

    private static void consume(JsonNode job, ObjectNode response) {
        List<TopicPartition> partitions = partitions(job);
        try (var consumer = consumer(job, Map.of())) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            read(consumer, job, response);
        }
    }

    private static void consumeGroup(JsonNode job, ObjectNode response) {
        try (var consumer = consumer(job, Map.of("group.id", job.get("group").asText()))) {
            consumer.subscribe(List.of(job.get("topic").asText()));
            read(consumer, job, response);
            consumer.commitSync();
            Set<TopicPartition> assigned = new HashSet<>(consumer.assignment());
            ObjectNode committed = response.putObject("committed");
            for (Map.Entry<TopicPartition, OffsetAndMetadata> entry : consumer.committed(assigned).entrySet()) {
                if (entry.getValue() != null) {
                    committed.put(String.valueOf(entry.getKey().partition()), entry.getValue().offset());
                }
            }
        }
    }

    private static void offsetForTime(JsonNode job, ObjectNode response) {
        TopicPartition partition = new TopicPartition(job.get("topic").asText(), job.get("partition").asInt());
        try (var consumer = consumer(job, Map.of())) {
            OffsetAndTimestamp result =
                    consumer.offsetsForTimes(Map.of(partition, job.get("timestamp").asLong())).get(partition);
            response.put("offset", result == null ? -1 : result.offset());
        }
    }

    private static void administer(String op, JsonNode job, ObjectNode response) throws Exception {
        String topic = job.get("topic").asText();
        try (Admin admin = Admin.create(common(job))) {
            switch (op) {
                case "create_topic" -> {
                    Map<String, String> configs = new HashMap<>();
                    job.get("configs").properties().forEach(
                            entry -> configs.put(entry.getKey(), entry.getValue().asText()));
                    NewTopic created = new NewTopic(topic, job.get("partitions").asInt(), (short) 1);
                    admin.createTopics(List.of(created.configs(configs))).all().get();
                }
                case "delete_topic" -> admin.deleteTopics(List.of(topic)).all().get();
                default -> {
                    ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                    ObjectNode configs = response.putObject("configs");
                    admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()
                            .forEach(entry -> configs.put(entry.name(), entry.value()));
                }
            }
        }
    }
}

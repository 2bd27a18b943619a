import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Asks a real broker for everything it serves, and prints it as JSON lines.
 *
 * <p>Usage: java ReadKafkaLog.java BOOTSTRAP, with one JSON object on stdin:
 * <ul>
 *   <li>"create": topic to {"partitions": n, "configs": {name: value}}; created first;
 *   <li>"read": the topics to read from the first offset to the last, under both isolation levels;
 *   <li>"timestamps": "topic-partition" to the timestamps to look up.
 * </ul>
 */
public class ReadKafkaLog {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Duration STALLED = Duration.ofSeconds(20);

    public static void main(String[] args) throws Exception {
        JsonNode request = JSON.readTree(System.in);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            create(admin, request.path("create"));
            List<TopicPartition> partitions = partitions(admin, request.path("read"));
            if (!partitions.isEmpty()) {
                printMaxTimestamps(admin, partitions);
                read(args[0], "read_uncommitted", partitions, request.path("timestamps"));
                read(args[0], "read_committed", partitions, JSON.createObjectNode());
            }
        }
    }

    static void create(Admin admin, JsonNode request) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        request.properties().forEach(entry -> {
            Map<String, String> configs = new HashMap<>();
            entry.getValue().path("configs").properties().forEach(
                config -> configs.put(config.getKey(), config.getValue().asText()));
            int count = entry.getValue().path("partitions").asInt();
            topics.add(new NewTopic(entry.getKey(), count, (short) 1).configs(configs));
        });
        admin.createTopics(topics).all().get();
    }

    static List<TopicPartition> partitions(Admin admin, JsonNode topics) throws Exception {
        List<String> names = new ArrayList<>();
        topics.forEach(name -> names.add(name.asText()));
        List<TopicPartition> partitions = new ArrayList<>();
        admin.describeTopics(names).allTopicNames().get().forEach((name, topic) ->
            topic.partitions().forEach(info -> partitions.add(new TopicPartition(name, info.partition()))));
        return partitions;
    }

    static void printMaxTimestamps(Admin admin, List<TopicPartition> partitions) throws Exception {
        Map<TopicPartition, OffsetSpec> specs = new HashMap<>();
        partitions.forEach(partition -> specs.put(partition, OffsetSpec.maxTimestamp()));
        for (Map.Entry<TopicPartition, ListOffsetsResultInfo> result :
                admin.listOffsets(specs).all().get().entrySet()) {
            Map<String, Object> line = line("max-timestamp", result.getKey());
            line.put("offset", result.getValue().offset());
            line.put("timestamp", result.getValue().timestamp());
            System.out.println(JSON.writeValueAsString(line));
        }
    }

    static void read(
            String bootstrap, String isolation, List<TopicPartition> partitions, JsonNode timestamps)
            throws Exception {
        Map<String, Object> configs = Map.of(
            "bootstrap.servers", bootstrap,
            "isolation.level", isolation,
            "enable.auto.commit", "false",
            "auto.offset.reset", "none",
            "max.partition.fetch.bytes", "8388608",
            "max.poll.records", "5000");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                configs, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            Map<TopicPartition, Long> first = consumer.beginningOffsets(partitions);
            Map<TopicPartition, Long> last = consumer.endOffsets(partitions);
            for (TopicPartition partition : partitions) {
                Map<String, Object> line = line("offsets", partition);
                line.put("isolation", isolation);
                line.put("first", first.get(partition));
                line.put("last", last.get(partition));
                System.out.println(JSON.writeValueAsString(line));
                for (JsonNode timestamp : timestamps.path(partition.toString())) {
                    printOffsetFor(consumer, partition, timestamp.asLong());
                }
            }
            first.forEach(consumer::seek);
            long deadline = System.nanoTime() + STALLED.toNanos();
            while (partitions.stream().anyMatch(p -> consumer.position(p) < last.get(p))) {
                boolean any = false;
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    print(isolation, record);
                    any = true;
                }
                if (any) {
                    deadline = System.nanoTime() + STALLED.toNanos();
                } else if (System.nanoTime() > deadline) {
                    partitions.forEach(p -> System.err.println(
                        p + ": " + isolation + " stopped at " + consumer.position(p) + " of " + last.get(p)));
                    throw new IllegalStateException("the broker serves no more records");
                }
            }
        }
    }

    static void printOffsetFor(KafkaConsumer<?, ?> consumer, TopicPartition partition, long timestamp)
            throws Exception {
        OffsetAndTimestamp result = consumer.offsetsForTimes(Map.of(partition, timestamp)).get(partition);
        Map<String, Object> line = line("offset-for-timestamp", partition);
        line.put("searched", timestamp);
        line.put("offset", result == null ? -1 : result.offset());
        line.put("timestamp", result == null ? -1 : result.timestamp());
        System.out.println(JSON.writeValueAsString(line));
    }

    static void print(String isolation, ConsumerRecord<byte[], byte[]> record) throws Exception {
        Map<String, Object> line = line("record", new TopicPartition(record.topic(), record.partition()));
        line.put("isolation", isolation);
        line.put("offset", record.offset());
        line.put("timestamp", record.timestamp());
        line.put("timestampType", record.timestampType().name);
        line.put("leaderEpoch", record.leaderEpoch().orElse(-1));
        line.put("key", record.key());
        line.put("value", record.value());
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(Arrays.asList(header.key(), header.value()));
        }
        line.put("headers", headers);
        System.out.println(JSON.writeValueAsString(line)); // byte arrays become base64
    }

    static Map<String, Object> line(String kind, TopicPartition partition) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", kind);
        line.put("topic", partition.topic());
        line.put("partition", partition.partition());
        return line;
    }
}

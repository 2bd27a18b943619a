import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Jobs with transactional producers, and with readers, that stay open from one job to another. */
final class Transactions {
    private static final Map<String, KafkaProducer<byte[], byte[]>> PRODUCERS = new HashMap<>();
    private static final Map<String, KafkaConsumer<byte[], byte[]>> READERS = new HashMap<>();

    private Transactions() {}

    /** Runs the job; returns false for an operation that is not one of these. */
    static boolean run(String op, JsonNode job, ObjectNode response) throws Exception {
        String handle = job.path("handle").asText();
        switch (op) {
            case "producer_open" -> PRODUCERS.put(handle, producer(job));
            case "producer_begin" -> PRODUCERS.get(handle).beginTransaction();
            case "producer_send" -> send(PRODUCERS.get(handle), job);
            case "producer_send_offset" -> sendOffset(PRODUCERS.get(handle), job);
            case "producer_commit" -> PRODUCERS.get(handle).commitTransaction();
            case "producer_abort" -> PRODUCERS.get(handle).abortTransaction();
            case "producer_close" -> PRODUCERS.remove(handle).close(Duration.ZERO);
            case "reader_open" -> READERS.put(handle, reader(job));
            case "reader_read" -> KafkaClient.read(READERS.get(handle), job, response);
            case "reader_close" -> READERS.remove(handle).close();
            case "transform" -> transform(job);
            default -> {
                return false;
            }
        }
        return true;
    }

    private static KafkaProducer<byte[], byte[]> producer(JsonNode job) {
        Map<String, Object> config = KafkaClient.common(job);
        config.put("transactional.id", job.get("transactional_id").asText());
        config.put("transaction.timeout.ms", job.get("transaction_timeout_ms").asInt());
        config.put("max.block.ms", job.get("timeout_ms").asInt());
        // Not above the time that a transaction has, or the client refuses both.
        config.put("delivery.timeout.ms", job.get("timeout_ms").asInt());
        config.put("request.timeout.ms", job.get("timeout_ms").asInt() / 2);
        config.put("retry.backoff.ms", 20);
        var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        try {
            producer.initTransactions();
        } catch (RuntimeException refused) {
            producer.close(Duration.ZERO);
            throw refused;
        }
        return producer;
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, JsonNode job) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode fields : job.get("records")) {
            sent.add(producer.send(KafkaClient.record(job.get("topic").asText(), fields)));
        }
        for (Future<RecordMetadata> result : sent) {
            result.get();
        }
    }

    /** As the member of a generation that the job names, or as nobody of the group. */
    @SuppressWarnings("removal") // of the constructors, for which there is nothing else in any version
    private static void sendOffset(KafkaProducer<byte[], byte[]> producer, JsonNode job) {
        String group = job.get("group").asText();
        TopicPartition partition = new TopicPartition(job.get("topic").asText(), job.get("partition").asInt());
        producer.sendOffsetsToTransaction(
                Map.of(partition, new OffsetAndMetadata(job.get("offset").asLong())),
                job.get("member").isNull()
                        ? new ConsumerGroupMetadata(group)
                        : new ConsumerGroupMetadata(group, 1, job.get("member").asText(), Optional.empty()));
    }

    private static Map<String, Object> isolation(boolean committed) {
        return Map.of("isolation.level", committed ? "read_committed" : "read_uncommitted");
    }

    private static KafkaConsumer<byte[], byte[]> reader(JsonNode job) {
        var consumer = KafkaClient.consumer(job, isolation(job.get("committed").asBoolean()));
        List<TopicPartition> partitions = KafkaClient.partitions(job);
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        return consumer;
    }

    private static void transform(JsonNode job) throws Exception {
        Map<String, Object> member = new HashMap<>(isolation(true));
        member.put("group.id", job.get("group").asText());
        member.put("max.poll.records", job.get("count").asInt());
        try (var producer = producer(job); var consumer = KafkaClient.consumer(job, member)) {
            consumer.subscribe(List.of(job.get("topic").asText()));
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> reached = new HashMap<>();
            long deadline = System.nanoTime() + job.get("timeout_ms").asLong() * 1_000_000;
            int read = 0;
            while (read < job.get("count").asInt()) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("only " + read + " records came");
                }
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    String value = "copy of " + new String(record.value());
                    producer.send(new ProducerRecord<>(
                            job.get("target").asText(), record.partition(), record.key(), value.getBytes()));
                    reached.put(
                            new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                    read++;
                }
            }
            producer.sendOffsetsToTransaction(reached, consumer.groupMetadata());
            if (job.get("commit").asBoolean()) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
    }
}

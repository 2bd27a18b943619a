import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Jobs with a producer that sends numbers to every partition, and a group member that reads them, both
 * in the background from stream_start to stream_end.
 */
final class Streams {
    private static final Map<String, Streams> STREAMS = new HashMap<>();

    private final String topic;
    private final KafkaProducer<byte[], byte[]> producer;
    private final KafkaConsumer<byte[], byte[]> member;
    private final List<List<Long>> sent = new ArrayList<>();
    private final List<List<long[]>> read = new ArrayList<>();
    private final int[] acknowledged;
    private final Thread sending;
    private final Thread reading;
    private volatile boolean isSending = true;
    private volatile boolean isReading = true;
    private Exception failure;

    private Streams(JsonNode job) {
        topic = job.get("topic").asText();
        acknowledged = new int[job.get("count").asInt()];
        for (int partition = 0; partition < acknowledged.length; partition++) {
            sent.add(new ArrayList<>());
            read.add(new ArrayList<>());
        }
        Map<String, Object> config = KafkaClient.common(job);
        config.put("acks", "all");
        config.put("enable.idempotence", true);
        producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        Map<String, Object> memberConfig = new HashMap<>();
        memberConfig.put("group.id", job.get("group").asText());
        memberConfig.put("enable.auto.commit", true);
        memberConfig.put("auto.commit.interval.ms", 1000);
        memberConfig.put("fetch.max.wait.ms", 100);
        job.get("settings").properties().forEach(
                entry -> memberConfig.put(entry.getKey(), entry.getValue().asText()));
        member = KafkaClient.consumer(job, memberConfig);
        member.subscribe(List.of(topic));
        long interval = job.get("interval_ms").asLong();
        sending = new Thread(() -> send(interval));
        reading = new Thread(this::receive);
        sending.start();
        reading.start();
    }

    /** Does the job, unless it is none of these. */
    static boolean run(String op, JsonNode job, ObjectNode response) throws Exception {
        String handle = job.path("handle").asText();
        switch (op) {
            case "stream_start" -> STREAMS.put(handle, new Streams(job));
            case "stream_progress" -> STREAMS.get(handle).progress(response);
            case "stream_end" -> STREAMS.remove(handle).end(job.get("timeout_ms").asLong(), response);
            default -> {
                return false;
            }
        }
        return true;
    }

    private synchronized void fail(Exception error) {
        failure = error;
    }

    private synchronized void acknowledge(int partition, int number, long offset) {
        sent.get(partition).set(number, offset);
        acknowledged[partition]++;
    }

    private synchronized void expect(int partition) {
        sent.get(partition).add(-1L);
    }

    private void send(long interval) {
        try {
            for (int number = 0; isSending; number++) {
                Thread.sleep(interval);
                byte[] value = String.valueOf(number).getBytes(StandardCharsets.US_ASCII);
                for (int partition = 0; partition < acknowledged.length; partition++) {
                    int index = partition;
                    int place = number;
                    expect(partition);
                    producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) -> {
                        if (error == null) {
                            acknowledge(index, place, metadata.offset());
                        } else {
                            fail(error);
                        }
                    });
                }
            }
            producer.flush();
        } catch (Exception error) {
            fail(error);
        }
    }

    private void receive() {
        try (member) {
            while (isReading) {
                var polled = member.poll(Duration.ofMillis(100));
                synchronized (this) {
                    for (ConsumerRecord<byte[], byte[]> record : polled) {
                        long number = Long.parseLong(new String(record.value(), StandardCharsets.US_ASCII));
                        read.get(record.partition()).add(new long[] {record.offset(), number});
                    }
                }
            }
        } catch (Exception error) {
            fail(error);
        }
    }

    /** Returns the offset after the last record that was read from a partition. */
    private long position(int partition) {
        List<long[]> records = read.get(partition);
        return records.isEmpty() ? 0 : records.get(records.size() - 1)[0] + 1;
    }

    private void check() throws Exception {
        if (failure != null) {
            throw failure;
        }
    }

    private synchronized void progress(ObjectNode response) throws Exception {
        check();
        ArrayNode counts = response.putArray("acknowledged");
        ArrayNode positions = response.putArray("positions");
        for (int partition = 0; partition < acknowledged.length; partition++) {
            counts.add(acknowledged[partition]);
            positions.add(position(partition));
        }
    }

    private synchronized boolean hasReadAll() throws Exception {
        check();
        for (int partition = 0; partition < acknowledged.length; partition++) {
            if (position(partition) < sent.get(partition).size()) {
                return false;
            }
        }
        return true;
    }

    private void end(long timeout, ObjectNode response) throws Exception {
        long deadline = System.nanoTime() + timeout * 1_000_000;
        isSending = false;
        sending.join();
        while (!hasReadAll()) {
            if (System.nanoTime() > deadline) {
                throw new TimeoutException("not all records were read");
            }
            Thread.sleep(20);
        }
        isReading = false;
        reading.join();
        producer.close();
        check();
        ArrayNode sentOffsets = response.putArray("sent");
        sent.forEach(offsets -> offsets.forEach(sentOffsets.addArray()::add));
        ArrayNode readRecords = response.putArray("read");
        for (List<long[]> records : read) {
            ArrayNode pairs = readRecords.addArray();
            records.forEach(record -> pairs.addArray().add(record[0]).add(record[1]));
        }
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;

/** Jobs of those who look after transactions: what there is, how far readers get, and ending it. */
final class TransactionAdmin {
    private TransactionAdmin() {}

    /** Does the job, unless it is none of these. */
    static boolean run(String op, JsonNode job, ObjectNode response) throws Exception {
        String id = job.path("transactional_id").asText();
        TopicPartition partition =
                new TopicPartition(job.path("topic").asText(), job.path("partition").asInt());
        try (Admin admin = Admin.create(KafkaClient.common(job))) {
            switch (op) {
                case "describe_transaction" -> describe(admin, id, response.putObject("transaction"));
                case "list_transactions" -> list(admin, job, response.putObject("states"));
                case "describe_producers" -> producers(admin, partition, response.putArray("producers"));
                case "abort_transaction" -> admin.abortTransaction(new AbortTransactionSpec(
                        partition,
                        job.get("producer_id").asLong(),
                        (short) job.get("producer_epoch").asInt(),
                        job.get("coordinator_epoch").asInt())).all().get();
                case "fence_producer" -> admin.fenceProducers(List.of(id)).all().get();
                case "group_offset" -> {
                    String group = job.get("group").asText();
                    var options = new ListConsumerGroupOffsetsOptions().requireStable(job.get("stable").asBoolean());
                    Map<TopicPartition, OffsetAndMetadata> offsets = admin.listConsumerGroupOffsets(
                            Map.of(group, new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(partition))),
                            options).partitionsToOffsetAndMetadata(group).get();
                    // It leaves out a partition whose offset is not stable.
                    if (offsets.containsKey(partition)) {
                        OffsetAndMetadata committed = offsets.get(partition);
                        response.put("offset", committed == null ? -1 : committed.offset());
                    }
                }
                case "end_offset" -> {
                    boolean committed = job.get("committed").asBoolean();
                    ListOffsetsOptions options = new ListOffsetsOptions(
                            committed ? IsolationLevel.READ_COMMITTED : IsolationLevel.READ_UNCOMMITTED);
                    response.put("offset", admin.listOffsets(Map.of(partition, OffsetSpec.latest()), options)
                            .partitionResult(partition).get().offset());
                }
                default -> {
                    return false;
                }
            }
        }
        return true;
    }

    private static void describe(Admin admin, String id, ObjectNode described) throws Exception {
        TransactionDescription transaction = admin.describeTransactions(List.of(id)).description(id).get();
        described.put("state", transaction.state().toString());
        described.put("producer_id", transaction.producerId());
        described.put("producer_epoch", transaction.producerEpoch());
        described.put("timeout_ms", transaction.transactionTimeoutMs());
        described.put("started", transaction.transactionStartTimeMs().isPresent());
        ArrayNode partitions = described.putArray("partitions");
        for (TopicPartition partition : transaction.topicPartitions()) {
            partitions.addArray().add(partition.topic()).add(partition.partition());
        }
    }

    private static void list(Admin admin, JsonNode job, ObjectNode states) throws Exception {
        List<TransactionState> filter = new ArrayList<>();
        job.get("states").forEach(state -> filter.add(TransactionState.parse(state.asText())));
        List<Long> producers = new ArrayList<>();
        job.get("producer_ids").forEach(producer -> producers.add(producer.asLong()));
        ListTransactionsOptions options = new ListTransactionsOptions()
                .filterStates(filter)
                .filterProducerIds(producers)
                .filterOnDuration(job.get("min_duration_ms").asLong());
        for (TransactionListing transaction : admin.listTransactions(options).all().get()) {
            states.put(transaction.transactionalId(), transaction.state().toString());
        }
    }

    private static void producers(Admin admin, TopicPartition partition, ArrayNode producers) throws Exception {
        for (ProducerState producer : admin.describeProducers(List.of(partition))
                .partitionResult(partition).get().activeProducers()) {
            ObjectNode state = producers.addObject();
            state.put("producer_id", producer.producerId());
            state.put("producer_epoch", producer.producerEpoch());
            state.put("last_sequence", producer.lastSequence());
            state.put("coordinator_epoch", producer.coordinatorEpoch().orElse(-1));
            state.put("transaction_start", producer.currentTransactionStartOffset().orElse(-1));
        }
    }
}

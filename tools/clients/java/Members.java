import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupsOptions;
import org.apache.kafka.clients.admin.MemberAssignment;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;

/** Jobs with members of a group that stay in it from one job to another, and with groups. */
@SuppressWarnings({"deprecation", "removal"}) // what takes their place is not in the 3.x line
final class Members {
    private static final Map<String, KafkaConsumer<byte[], byte[]>> MEMBERS = new HashMap<>();

    private Members() {}

    /** Does the job, unless it is none of these. */
    static boolean run(String op, JsonNode job, ObjectNode response) throws Exception {
        String handle = job.path("handle").asText();
        switch (op) {
            case "member_join" -> MEMBERS.put(handle, join(job));
            case "member_poll" -> {
                KafkaConsumer<byte[], byte[]> member = MEMBERS.get(handle);
                KafkaClient.add(member.poll(Duration.ofMillis(job.get("wait_ms").asInt())), response.putArray("records"));
                put(member.assignment(), response.putArray("assignment"));
            }
            case "member_commit" -> MEMBERS.get(handle).commitSync();
            case "member_leave" -> MEMBERS.remove(handle).close();
            case "list_groups" -> list(job, response.putObject("groups"));
            case "describe_group" -> describe(job, response.putObject("group"));
            default -> {
                return false;
            }
        }
        return true;
    }

    private static KafkaConsumer<byte[], byte[]> join(JsonNode job) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("group.id", job.get("group").asText());
        job.get("settings").properties().forEach(
                entry -> config.put(entry.getKey(), entry.getValue().asText()));
        var consumer = KafkaClient.consumer(job, config);
        if (job.get("pattern").isNull()) {
            List<String> topics = new ArrayList<>();
            job.get("topics").forEach(topic -> topics.add(topic.asText()));
            consumer.subscribe(topics);
        } else {
            // Named only here, because clients before 4.0 have no such class.
            Class<?> pattern = Class.forName("org.apache.kafka.clients.consumer.SubscriptionPattern");
            KafkaConsumer.class.getMethod("subscribe", pattern).invoke(
                    consumer, pattern.getConstructor(String.class).newInstance(job.get("pattern").asText()));
        }
        return consumer;
    }

    private static void put(Collection<TopicPartition> partitions, ArrayNode into) {
        partitions.forEach(partition -> into.addArray().add(partition.topic()).add(partition.partition()));
    }

    private static void list(JsonNode job, ObjectNode groups) throws Exception {
        ListConsumerGroupsOptions options = new ListConsumerGroupsOptions();
        if (!job.get("type").isNull()) {
            options.withTypes(Set.of(GroupType.parse(job.get("type").asText())));
        }
        try (Admin admin = Admin.create(KafkaClient.common(job))) {
            for (ConsumerGroupListing group : admin.listConsumerGroups(options).all().get()) {
                ArrayNode listed = groups.putArray(group.groupId());
                listed.add(group.type().map(GroupType::toString).orElse(null));
                listed.add(group.state().map(Object::toString).orElse(null));
            }
        }
    }

    private static void describe(JsonNode job, ObjectNode described) throws Exception {
        String group = job.get("group").asText();
        try (Admin admin = Admin.create(KafkaClient.common(job))) {
            ConsumerGroupDescription details =
                    admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get();
            described.put("type", details.type().toString());
            described.put("state", details.state().toString());
            described.put("assignor", details.partitionAssignor());
            ArrayNode members = described.putArray("members");
            for (MemberDescription description : details.members()) {
                ObjectNode member = members.addObject();
                member.put("client_id", description.clientId());
                member.put("instance_id", description.groupInstanceId().orElse(null));
                put(description.assignment().topicPartitions(), member.putArray("assignment"));
                Optional<MemberAssignment> target = description.targetAssignment();
                target.ifPresent(assignment -> put(assignment.topicPartitions(), member.putArray("target")));
            }
        }
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Timer;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.common.runtime.*;
import org.apache.kafka.coordinator.group.*;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.generated.GroupMetadataKey;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Drives Kafka's own group coordinator, without a broker, by the lines of its input:
 *
 * <pre>
 * CONFIG name=value ...          resets all state, with these settings
 * TOPICS name/id/partitions ...  replaces the topics
 * NOW ms                         advances the time; due timers run in the order of time, then name
 * REQUEST api version client base64  handles a request
 * REGEX                          resolves the pending patterns
 * RESTART                        loads the coordinator from its records
 * </pre>
 *
 * Prints for each line "RECORD key value" for what was written, "RESPONSE number base64" for each
 * completed request (counted from 0), or "ERROR number code", and then "DONE".
 */
public class DriveGroups {
    private static final Base64.Encoder TO_TEXT = Base64.getEncoder();
    private final Map<String, Object> config = new HashMap<>();
    private final FakeTime time = new FakeTime();
    private final FakeTimer timer = new FakeTimer();
    private final FakeExecutor executor = new FakeExecutor();
    private final GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
    private final List<byte[][]> log = new ArrayList<>();
    private Image image = new Image(1, Map.of());
    private GroupCoordinatorShard shard;
    private int requests = 0;

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        DriveGroups drive = new DriveGroups();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            drive.run(line.split(" "));
            System.out.println("DONE");
        }
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "CONFIG":
                config.clear();
                log.clear();
                time.now = 0;
                requests = 0;
                image = new Image(1, Map.of());
                for (int i = 1; i < words.length; i++) {
                    config.put(words[i].split("=")[0], words[i].split("=")[1]);
                }
                restart();
                break;
            case "TOPICS":
                topics(words);
                break;
            case "NOW":
                timer.advance(Long.parseLong(words[1]));
                break;
            case "REQUEST":
                handle(ApiKeys.forId(Integer.parseInt(words[1])), Short.parseShort(words[2]), words[3],
                    ByteBuffer.wrap(Base64.getDecoder().decode(words.length > 4 ? words[4] : "")));
                break;
            case "REGEX":
                executor.run();
                break;
            case "RESTART":
                restart();
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private void restart() {
        config.put("group.consumer.assignors", List.of(FreshRange.class));
        timer.tasks.clear();
        executor.tasks.clear();
        GroupCoordinatorConfig groupConfig = GroupCoordinatorConfig.fromProps(config);
        ShareGroupConfig share = new ShareGroupConfig(new AbstractConfig(
            Utils.mergeConfigs(
                List.of(ShareGroupConfig.CONFIG_DEF, GroupCoordinatorConfig.CONFIG_DEF)), config));
        GroupCoordinatorShard.Builder builder = new GroupCoordinatorShard.Builder(
            groupConfig, new GroupConfigManager(Map.of(), groupConfig, share));
        builder.withAuthorizerPlugin(Optional.empty());
        shard = builder
            .withLogContext(new LogContext())
            .withTime(time)
            .withTimer(timer)
            .withExecutor(executor)
            .withCoordinatorMetrics(new GroupCoordinatorMetrics(
                new com.yammer.metrics.core.MetricsRegistry(), new Metrics()))
            .withTopicPartition(new TopicPartition("__consumer_offsets", 0))
            .withSnapshotRegistry(new SnapshotRegistry(new LogContext()))
            .build();
        for (byte[][] record : log) {
            replay(serde.deserialize(ByteBuffer.wrap(record[0]),
                record[1] == null ? null : ByteBuffer.wrap(record[1])));
        }
        // The metadata has changed since, as always.
        image = new Image(image.version + 1, image.topics);
        shard.onLoaded(image);
    }

    private void replay(CoordinatorRecord record) {
        shard.replay(0L, -1L, (short) -1, record);
    }

    private void topics(String[] words) {
        Map<String, Image.Topic> topics = new HashMap<>();
        for (int i = 1; i < words.length; i++) {
            String[] parts = words[i].split("/");
            java.util.UUID id = java.util.UUID.fromString(parts[1]);
            topics.put(parts[0], new Image.Topic(parts[0],
                new Uuid(id.getMostSignificantBits(), id.getLeastSignificantBits()),
                Integer.parseInt(parts[2])));
        }
        Image old = image;
        image = new Image(old.version + 1, topics);
        shard.onMetadataUpdate(new Delta(old, image), image);
    }

    private void perform(CoordinatorResult<?, CoordinatorRecord> result) {
        for (CoordinatorRecord record : result.records()) {
            byte[] key = serde.serializeKey(record);
            byte[] value = record.value() == null ? null : serde.serializeValue(record);
            log.add(new byte[][] {key, value});
            System.out.println("RECORD " + TO_TEXT.encodeToString(key) + " "
                + (value == null ? "-" : TO_TEXT.encodeToString(value)));
            if (result.replayRecords()) replay(record);
            if (record.key() instanceof GroupMetadataKey group && value != null) {
                // Kafka leaves these behind when a group becomes classic, and they fence members
                // should it be upgraded again before they are due.
                timer.tasks.keySet().removeIf(name -> name.startsWith("join-" + group.group() + "-")
                    || name.startsWith("sync-" + group.group() + "-")
                    || name.startsWith("rebalance-timeout-" + group.group() + "-"));
            }
        }
        if (result.appendFuture() != null) result.appendFuture().complete(null);
    }

    private void printResponse(int number, ApiMessage response, short version) {
        if (response instanceof JoinGroupResponseData join && join.protocolName() == null) {
            join.setProtocolName("");
        }
        ByteBuffer bytes = MessageUtil.toByteBufferAccessor(response, version).buffer();
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        System.out.println("RESPONSE " + number + " " + TO_TEXT.encodeToString(copy));
    }

    private <T extends ApiMessage> CompletableFuture<T> later(int number, short version) {
        CompletableFuture<T> future = new CompletableFuture<>();
        future.thenAccept(response -> printResponse(number, response, version));
        return future;
    }

    private void complete(int number, CoordinatorResult<? extends ApiMessage, CoordinatorRecord> result,
            short version) {
        perform(result);
        printResponse(number, result.response(), version);
    }

    private void handle(ApiKeys api, short version, String client, ByteBuffer body) throws Exception {
        int number = requests++;
        Context context = new Context(api, version, client);
        ByteBufferAccessor bytes = new ByteBufferAccessor(body);
        try {
            switch (api) {
                case CONSUMER_GROUP_HEARTBEAT:
                    complete(number, shard.consumerGroupHeartbeat(
                        context, new ConsumerGroupHeartbeatRequestData(bytes, version)), version);
                    break;
                case JOIN_GROUP:
                    perform(shard.classicGroupJoin(context,
                        new JoinGroupRequestData(bytes, version), later(number, version)));
                    break;
                case SYNC_GROUP:
                    perform(shard.classicGroupSync(context,
                        new SyncGroupRequestData(bytes, version), later(number, version)));
                    break;
                case HEARTBEAT:
                    complete(number, shard.classicGroupHeartbeat(
                        context, new HeartbeatRequestData(bytes, version)), version);
                    break;
                case LEAVE_GROUP:
                    complete(number, shard.classicGroupLeave(
                        context, new LeaveGroupRequestData(bytes, version)), version);
                    break;
                case OFFSET_COMMIT:
                    OffsetCommitRequestData commit = new OffsetCommitRequestData(bytes, version);
                    commit.topics().forEach(topic -> topic.setTopicId(
                        image.topicMetadata(topic.name()).get().id()));
                    complete(number, shard.commitOffset(context, commit), version);
                    break;
                case OFFSET_FETCH:
                    OffsetFetchRequestData fetch = new OffsetFetchRequestData(bytes, version);
                    OffsetFetchResponseData fetched = new OffsetFetchResponseData();
                    for (OffsetFetchRequestData.OffsetFetchRequestGroup group : fetch.groups()) {
                        fetched.groups().add(shard.fetchOffsets(group, Long.MAX_VALUE));
                    }
                    printResponse(number, fetched, version);
                    break;
                case CONSUMER_GROUP_DESCRIBE:
                    printResponse(number, new ConsumerGroupDescribeResponseData().setGroups(
                        shard.consumerGroupDescribe(
                            new ConsumerGroupDescribeRequestData(bytes, version).groupIds(),
                            Long.MAX_VALUE)), version);
                    break;
                case DESCRIBE_GROUPS:
                    printResponse(number, new DescribeGroupsResponseData().setGroups(shard.describeGroups(
                        context, new DescribeGroupsRequestData(bytes, version).groups(),
                        Long.MAX_VALUE)), version);
                    break;
                case LIST_GROUPS:
                    ListGroupsRequestData list = new ListGroupsRequestData(bytes, version);
                    printResponse(number, new ListGroupsResponseData().setGroups(shard.listGroups(
                        list.statesFilter(), list.typesFilter(), Long.MAX_VALUE)), version);
                    break;
                case DELETE_GROUPS:
                    CoordinatorResult<DeleteGroupsResponseData.DeletableGroupResultCollection,
                        CoordinatorRecord> deleted = shard.deleteGroups(
                            context, new DeleteGroupsRequestData(bytes, version).groupsNames());
                    perform(deleted);
                    printResponse(number, new DeleteGroupsResponseData().setResults(deleted.response()),
                        version);
                    break;
                default:
                    throw new IllegalArgumentException(api.name);
            }
        } catch (ApiException refused) {
            System.out.println("ERROR " + number + " " + Errors.forException(refused).code());
        }
    }

    /**
     * The range assignor with current data: Kafka uses an outdated flag for whether all members have
     * the same subscription when a member joins without topics of its own.
     */
    public static class FreshRange extends RangeAssignor {
        @Override
        public GroupAssignment assign(GroupSpec group, SubscribedTopicDescriber topics) {
            return super.assign(new FreshSpec(group), topics);
        }
    }

    private record FreshSpec(GroupSpec spec) implements GroupSpec {
        public Collection<String> memberIds() {
            return spec.memberIds();
        }

        public SubscriptionType subscriptionType() {
            Set<Set<Uuid>> different = new HashSet<>();
            memberIds().forEach(member -> different.add(
                new HashSet<>(memberSubscription(member).subscribedTopicIds())));
            return different.size() > 1
                ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS;
        }

        public boolean isPartitionAssigned(Uuid topicId, int partitionId) {
            return spec.isPartitionAssigned(topicId, partitionId);
        }

        public MemberSubscription memberSubscription(String memberId) {
            return spec.memberSubscription(memberId);
        }

        public MemberAssignment memberAssignment(String memberId) {
            return spec.memberAssignment(memberId);
        }

        public boolean isPartitionAssignable(Uuid topicId, int partitionId) {
            return spec.isPartitionAssignable(topicId, partitionId);
        }
    }

    private record Context(ApiKeys api, short version, String clientId)
            implements AuthorizableRequestContext {
        public String listenerName() {
            return "";
        }

        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        public KafkaPrincipal principal() {
            return KafkaPrincipal.ANONYMOUS;
        }

        public InetAddress clientAddress() {
            try {
                return InetAddress.getByAddress(new byte[] {127, 0, 0, 1});
            } catch (java.net.UnknownHostException impossible) {
                throw new IllegalStateException(impossible);
            }
        }

        public int requestType() {
            return api.id;
        }

        public int requestVersion() {
            return version;
        }

        public int correlationId() {
            return 0;
        }
    }

    private static class FakeTime implements Time {
        private long now = 0;

        public long milliseconds() {
            return now;
        }

        public long hiResClockMs() {
            return now;
        }

        public long nanoseconds() {
            return now * 1_000_000;
        }

        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }

        public void waitObject(Object obj, java.util.function.Supplier<Boolean> condition, long ms) {
            throw new UnsupportedOperationException();
        }

        public Timer timer(long timeoutMs) {
            throw new UnsupportedOperationException();
        }
    }

    private record Task(
        long deadline, CoordinatorTimer.TimeoutOperation<CoordinatorRecord> operation) { }

    private class FakeTimer implements CoordinatorTimer<CoordinatorRecord> {
        private final Map<String, Task> tasks = new LinkedHashMap<>();

        public void schedule(String key, long delay, TimeUnit unit, boolean retry,
                TimeoutOperation<CoordinatorRecord> operation) {
            tasks.remove(key);
            tasks.put(key, new Task(time.now + unit.toMillis(delay), operation));
        }

        public void schedule(String key, long delay, TimeUnit unit, boolean retry, long backoff,
                TimeoutOperation<CoordinatorRecord> operation) {
            schedule(key, delay, unit, retry, operation);
        }

        public void scheduleIfAbsent(String key, long delay, TimeUnit unit, boolean retry,
                TimeoutOperation<CoordinatorRecord> operation) {
            if (!tasks.containsKey(key)) schedule(key, delay, unit, retry, operation);
        }

        public void cancel(String key) {
            tasks.remove(key);
        }

        public boolean isScheduled(String key) {
            return tasks.containsKey(key);
        }

        private void advance(long now) {
            while (true) {
                String due = null;
                for (Map.Entry<String, Task> task : new TreeMap<>(tasks).entrySet()) {
                    if (task.getValue().deadline <= now
                            && (due == null || task.getValue().deadline < tasks.get(due).deadline)) {
                        due = task.getKey();
                    }
                }
                if (due == null) break;
                Task task = tasks.remove(due);
                time.now = Math.max(time.now, task.deadline);
                perform(task.operation.generateRecords());
            }
            time.now = now;
        }
    }

    private class FakeExecutor implements CoordinatorExecutor<CoordinatorRecord> {
        private final Map<String, Runnable> tasks = new LinkedHashMap<>();

        public <R> boolean schedule(String key, TaskRunnable<R> task,
                TaskOperation<CoordinatorRecord, R> operation) {
            return tasks.putIfAbsent(key, () -> {
                try {
                    perform(operation.onComplete(task.run(), null));
                } catch (Throwable failed) {
                    throw new IllegalStateException(failed);
                }
            }) == null;
        }

        public boolean isScheduled(String key) {
            return tasks.containsKey(key);
        }

        public void cancel(String key) {
            tasks.remove(key);
        }

        private void run() {
            List<Runnable> due = new ArrayList<>(tasks.values());
            tasks.clear();
            due.forEach(Runnable::run);
        }
    }

    private record Image(long version, Map<String, Topic> topics)
            implements CoordinatorMetadataImage {
        private record Topic(String name, Uuid id, int partitionCount) implements TopicMetadata {
            public List<String> partitionRacks(int partition) {
                return new ArrayList<>();
            }
        }

        public Set<Uuid> topicIds() {
            Set<Uuid> ids = new HashSet<>();
            topics.values().forEach(topic -> ids.add(topic.id()));
            return ids;
        }

        public Set<String> topicNames() {
            return topics.keySet();
        }

        public Optional<TopicMetadata> topicMetadata(String name) {
            return Optional.ofNullable(topics.get(name));
        }

        public Optional<TopicMetadata> topicMetadata(Uuid id) {
            return topics.values().stream().filter(t -> t.id().equals(id))
                .map(t -> (TopicMetadata) t).findFirst();
        }

        public CoordinatorMetadataDelta emptyDelta() {
            return new Delta(this, this);
        }

        public boolean isEmpty() {
            return topics.isEmpty();
        }
    }

    private record Delta(Image old, Image next) implements CoordinatorMetadataDelta {
        public Collection<Uuid> createdTopicIds() {
            Set<Uuid> created = next.topicIds();
            created.removeAll(old.topicIds());
            return created;
        }

        public Collection<Uuid> changedTopicIds() {
            Set<Uuid> changed = new HashSet<>();
            next.topics.values().forEach(topic -> {
                if (!topic.equals(old.topics.get(topic.name()))) changed.add(topic.id());
            });
            return changed;
        }

        public Set<Uuid> deletedTopicIds() {
            Set<Uuid> deleted = old.topicIds();
            deleted.removeAll(next.topicIds());
            return deleted;
        }

        public CoordinatorMetadataImage image() {
            return old;
        }
    }
}

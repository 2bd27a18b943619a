import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Lets Kafka's assignors assign. Lines with fields between blanks, "-" where there is none:
 *
 * <pre>
 * TOPIC name racks/racks/...   the racks of the replicas of each partition, between commas
 * MEMBER id subscription       base64 of its subscription; the instance id follows
 * ASSIGN assignor              prints "id topic:partition,..." for each member, and "DONE"
 * USERDATA assignor generation topic:partition,...   prints the user data that a member sends after that assignment
 * </pre>
 */
public class AssignPartitions {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        List<PartitionInfo> partitions = new ArrayList<>();
        Map<String, Subscription> members = new HashMap<>();
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("TOPIC")) {
                partitions.addAll(topic(words[1], words[2]));
            } else if (words[0].equals("MEMBER")) {
                Subscription subscription = ConsumerProtocol.deserializeSubscription(
                    ByteBuffer.wrap(Base64.getDecoder().decode(words[2])));
                subscription.setGroupInstanceId(Optional.of(words[3]).filter(w -> !w.equals("-")));
                members.put(words[1], subscription);
            } else if (words[0].equals("USERDATA")) {
                ConsumerPartitionAssignor assignor = assignor(words[1]);
                assignor.onAssignment(new Assignment(list(words[3])),
                    new ConsumerGroupMetadata("g", Integer.parseInt(words[2]), "m", Optional.empty()));
                ByteBuffer data = assignor.subscriptionUserData(Set.of());
                byte[] bytes = new byte[data.remaining()];
                data.get(bytes);
                output.append(Base64.getEncoder().encodeToString(bytes)).append("\nDONE\n");
            } else {
                Cluster cluster = new Cluster("c", List.of(), partitions, Set.of(), Set.of());
                Map<String, Assignment> assigned = new TreeMap<>(assignor(words[1])
                    .assign(cluster, new GroupSubscription(members)).groupAssignment());
                assigned.forEach((member, assignment) -> output.append(member).append(' ').append(
                    assignment.partitions().stream().map(p -> p.topic() + ":" + p.partition())
                        .collect(Collectors.joining(","))).append('\n'));
                output.append("DONE\n");
                partitions = new ArrayList<>();
                members = new HashMap<>();
            }
        }
        System.out.print(output);
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    private static List<PartitionInfo> topic(String name, String racks) {
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String ofPartition : racks.split("/")) {
            Node[] nodes = Arrays.stream(ofPartition.split(","))
                .map(rack -> new Node(rack.hashCode(), "h", 1, rack.equals("-") ? null : rack))
                .toArray(Node[]::new);
            partitions.add(new PartitionInfo(name, partitions.size(), null, nodes, nodes));
        }
        return partitions;
    }

    private static List<TopicPartition> list(String text) {
        return Arrays.stream(text.split(",")).filter(word -> !word.equals("-")).map(word -> {
            int colon = word.lastIndexOf(':');
            return new TopicPartition(word.substring(0, colon), Integer.parseInt(word.substring(colon + 1)));
        }).collect(Collectors.toList());
    }
}

// The franz-go client as a program: a JSON job per line of stdin, a JSON response per line of stdout.
// The jobs are described in tests/support/kafka_clients/program.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type header [2]*string // name; base64 of the value, or null

type record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Key       *[]byte  `json:"key"`
	Value     *[]byte  `json:"value"`
	Headers   []header `json:"headers"`
}

type job struct {
	Op         string            `json:"op"`
	Bootstrap  string            `json:"bootstrap"`
	Topic      string            `json:"topic"`
	Records    []record          `json:"records"`
	Codec      string            `json:"codec"`
	Acks       string            `json:"acks"`
	Idempotent bool              `json:"idempotent"`
	AutoCreate bool              `json:"auto_create"`
	TimeoutMs  int64             `json:"timeout_ms"`
	Partitions json.RawMessage   `json:"partitions"` // a list of them to consume; their number to create
	Partition  int32             `json:"partition"`
	Timestamp  int64             `json:"timestamp"`
	Count      int               `json:"count"`
	Group      string            `json:"group"`
	Configs    map[string]string `json:"configs"`

	Handle               string `json:"handle"`
	TransactionalID      string `json:"transactional_id"`
	TransactionTimeoutMs int64  `json:"transaction_timeout_ms"`
	Committed            bool   `json:"committed"`
	Target               string `json:"target"`
	Commit               bool   `json:"commit"`

	IntervalMs int64 `json:"interval_ms"`
}

type response map[string]any

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var todo job
		result := response{}
		if err := json.Unmarshal(line, &todo); err != nil {
			result = describe(err)
		} else if err := run(todo, result); err != nil {
			result = describe(err)
		}
		if err := out.Encode(result); err != nil {
			return
		}
	}
}

// The broker's error code where there is one, else -1.
func describe(err error) response {
	code := int16(-1)
	var refused *kerr.Error
	if errors.As(err, &refused) {
		code = refused.Code
	}
	return response{"error": response{"code": code, "message": err.Error()}}
}

func run(todo job, result response) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(todo.TimeoutMs)*time.Millisecond)
	defer cancel()
	switch todo.Op {
	case "produce":
		return produce(ctx, todo, result)
	case "consume":
		return consume(ctx, todo, result)
	case "consume_group":
		return consumeGroup(ctx, todo, result)
	case "offset_for_time", "create_topic", "delete_topic", "topic_configs":
		return administer(ctx, todo, result)
	}
	if work, ok := transactionJobs[todo.Op]; ok {
		return work(ctx, todo, result)
	}
	if work, ok := streamJobs[todo.Op]; ok {
		return work(ctx, todo, result)
	}
	return fmt.Errorf("unknown job: %s", todo.Op)
}

func produce(ctx context.Context, todo job, result response) error {
	codec := map[string]kgo.CompressionCodec{
		"none":   kgo.NoCompression(),
		"gzip":   kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(),
		"lz4":    kgo.Lz4Compression(),
		"zstd":   kgo.ZstdCompression(),
	}[todo.Codec]
	acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}[todo.Acks]
	options := []kgo.Opt{
		kgo.SeedBrokers(todo.Bootstrap),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.ProducerBatchCompression(codec),
		kgo.RequiredAcks(acks),
		kgo.ProducerBatchMaxBytes(4 << 20),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	if !todo.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if todo.AutoCreate {
		options = append(options, kgo.AllowAutoTopicCreation())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	records, err := recordsOf(todo)
	if err != nil {
		return err
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	offsets := make([]int64, 0, len(records))
	for _, made := range records {
		if todo.Acks == "0" {
			offsets = append(offsets, -1)
		} else {
			offsets = append(offsets, made.Offset)
		}
	}
	result["offsets"] = offsets
	return nil
}

func recordsOf(todo job) ([]*kgo.Record, error) {
	records := make([]*kgo.Record, 0, len(todo.Records))
	for _, fields := range todo.Records {
		made := &kgo.Record{
			Topic:     todo.Topic,
			Partition: fields.Partition,
			Timestamp: time.UnixMilli(fields.Timestamp),
		}
		if fields.Key != nil {
			made.Key = *fields.Key
		}
		if fields.Value != nil {
			made.Value = *fields.Value
		}
		for _, pair := range fields.Headers {
			value, err := decode(pair[1])
			if err != nil {
				return nil, err
			}
			made.Headers = append(made.Headers, kgo.RecordHeader{Key: *pair[0], Value: value})
		}
		records = append(records, made)
	}
	return records, nil
}

func read(ctx context.Context, client *kgo.Client, count int) ([]record, error) {
	records := []record{}
	for len(records) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("after %d records: %w", len(records), err)
		}
		fetches.EachRecord(func(from *kgo.Record) {
			copied := record{
				Partition: from.Partition,
				Offset:    from.Offset,
				Timestamp: from.Timestamp.UnixMilli(),
				Headers:   []header{},
			}
			if from.Key != nil {
				copied.Key = &from.Key
			}
			if from.Value != nil {
				copied.Value = &from.Value
			}
			for _, source := range from.Headers {
				name := source.Key
				copied.Headers = append(copied.Headers, header{&name, encode(source.Value)})
			}
			records = append(records, copied)
		})
	}
	return records, nil
}

// The beginnings of the partitions to consume.
func starts(todo job) (map[string]map[int32]kgo.Offset, error) {
	var partitions []int32
	if err := json.Unmarshal(todo.Partitions, &partitions); err != nil {
		return nil, err
	}
	from := map[int32]kgo.Offset{}
	for _, partition := range partitions {
		from[partition] = kgo.NewOffset().AtStart()
	}
	return map[string]map[int32]kgo.Offset{todo.Topic: from}, nil
}

func consume(ctx context.Context, todo job, result response) error {
	from, err := starts(todo)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(todo.Bootstrap),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumePartitions(from),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	result["records"], err = read(ctx, client, todo.Count)
	return err
}

func consumeGroup(ctx context.Context, todo job, result response) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(todo.Bootstrap),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumerGroup(todo.Group),
		kgo.ConsumeTopics(todo.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	if result["records"], err = read(ctx, client, todo.Count); err != nil {
		return err
	}
	if err := client.CommitUncommittedOffsets(ctx); err != nil {
		return err
	}
	offsets, err := kadm.NewClient(client).FetchOffsets(ctx, todo.Group)
	if err != nil {
		return err
	}
	committed := map[int32]int64{}
	offsets.Each(func(offset kadm.OffsetResponse) { committed[offset.Partition] = offset.At })
	result["committed"] = committed
	return offsets.Error()
}

func administer(ctx context.Context, todo job, result response) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(todo.Bootstrap))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	switch todo.Op {
	case "create_topic":
		var partitions int32
		if err := json.Unmarshal(todo.Partitions, &partitions); err != nil {
			return err
		}
		configs := map[string]*string{}
		for name, value := range todo.Configs {
			configs[name] = kadm.StringPtr(value)
		}
		_, err := admin.CreateTopic(ctx, partitions, 1, configs, todo.Topic)
		return err
	case "delete_topic":
		_, err := admin.DeleteTopic(ctx, todo.Topic)
		return err
	case "topic_configs":
		described, err := admin.DescribeTopicConfigs(ctx, todo.Topic)
		if err != nil {
			return err
		}
		resource, err := described.On(todo.Topic, nil)
		if err != nil {
			return err
		}
		configs := map[string]*string{}
		for _, config := range resource.Configs {
			configs[config.Key] = config.Value
		}
		result["configs"] = configs
		return resource.Err
	}
	listed, err := admin.ListOffsetsAfterMilli(ctx, todo.Timestamp, todo.Topic)
	if err != nil {
		return err
	}
	offset, _ := listed.Lookup(todo.Topic, todo.Partition)
	result["offset"] = offset.Offset
	if offset.Timestamp == -1 { // no record is that late: kadm then returns the end of the partition
		result["offset"] = -1
	}
	return offset.Err
}

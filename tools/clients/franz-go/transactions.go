package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Transactional producers, and readers, that stay open from one job to another.
var (
	producers = map[string]*kgo.Client{}
	readers   = map[string]*kgo.Client{}
)

var transactionJobs = map[string]func(context.Context, job, response) error{
	"producer_open": func(_ context.Context, todo job, _ response) error {
		client, err := kgo.NewClient(producerOptions(todo)...)
		if err == nil {
			producers[todo.Handle] = client
		}
		return err
	},
	"producer_begin": func(_ context.Context, todo job, _ response) error {
		return producers[todo.Handle].BeginTransaction()
	},
	"producer_send": func(ctx context.Context, todo job, _ response) error {
		records, err := recordsOf(todo)
		if err != nil {
			return err
		}
		return producers[todo.Handle].ProduceSync(ctx, records...).FirstErr()
	},
	"producer_commit": func(ctx context.Context, todo job, _ response) error {
		return producers[todo.Handle].EndTransaction(ctx, kgo.TryCommit)
	},
	"producer_abort": func(ctx context.Context, todo job, _ response) error {
		return producers[todo.Handle].EndTransaction(ctx, kgo.TryAbort)
	},
	"producer_close": func(_ context.Context, todo job, _ response) error {
		producers[todo.Handle].Close()
		delete(producers, todo.Handle)
		return nil
	},
	"reader_open": openReader,
	"reader_read": func(ctx context.Context, todo job, result response) error {
		var err error
		result["records"], err = read(ctx, readers[todo.Handle], todo.Count)
		return err
	},
	"reader_close": func(_ context.Context, todo job, _ response) error {
		readers[todo.Handle].Close()
		delete(readers, todo.Handle)
		return nil
	},
	"transform": transform,
}

func producerOptions(todo job) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(todo.Bootstrap),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.TransactionalID(todo.TransactionalID),
		kgo.TransactionTimeout(time.Duration(todo.TransactionTimeoutMs) * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
}

func isolation(committed bool) kgo.Opt {
	if committed {
		return kgo.FetchIsolationLevel(kgo.ReadCommitted())
	}
	return kgo.FetchIsolationLevel(kgo.ReadUncommitted())
}

func openReader(_ context.Context, todo job, _ response) error {
	from, err := starts(todo)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(todo.Bootstrap),
		kgo.FetchMaxWait(100*time.Millisecond),
		isolation(todo.Committed),
		kgo.ConsumePartitions(from),
	)
	if err == nil {
		readers[todo.Handle] = client
	}
	return err
}

func transform(ctx context.Context, todo job, _ response) error {
	session, err := kgo.NewGroupTransactSession(append(
		producerOptions(todo),
		kgo.FetchMaxWait(100*time.Millisecond),
		isolation(true),
		kgo.ConsumerGroup(todo.Group),
		kgo.ConsumeTopics(todo.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)...)
	if err != nil {
		return err
	}
	defer session.Close()
	if err := session.Begin(); err != nil {
		return err
	}
	var copies []*kgo.Record
	for len(copies) < todo.Count {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("after %d records: %w", len(copies), err)
		}
		fetches.EachRecord(func(from *kgo.Record) {
			copies = append(copies, &kgo.Record{
				Topic:     todo.Target,
				Partition: from.Partition,
				Key:       from.Key,
				Value:     append([]byte("copy of "), from.Value...),
			})
		})
	}
	if err := session.ProduceSync(ctx, copies...).FirstErr(); err != nil {
		return err
	}
	ended, err := session.End(ctx, kgo.TransactionEndTry(todo.Commit))
	if err == nil && ended != todo.Commit {
		return fmt.Errorf("the transaction was to end with %v, and ended with %v", todo.Commit, ended)
	}
	return err
}

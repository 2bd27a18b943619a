package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A producer that sends numbers to every partition, and a group member that reads them, both in the
// background from stream_start to stream_end.
type stream struct {
	topic    string
	producer *kgo.Client
	member   *kgo.Client
	cancel   context.CancelFunc
	stopping chan struct{}
	sending  sync.WaitGroup
	reading  sync.WaitGroup

	lock    sync.Mutex
	sent    [][]int64
	acked   []int
	read    [][][2]int64
	failure error
}

var streams = map[string]*stream{}

var streamJobs = map[string]func(context.Context, job, response) error{
	"stream_start": startStream,
	"stream_progress": func(_ context.Context, todo job, result response) error {
		return streams[todo.Handle].report(result)
	},
	"stream_end": endStream,
}

func startStream(_ context.Context, todo job, _ response) error {
	seeds := kgo.SeedBrokers(strings.Split(todo.Bootstrap, ",")...)
	fresh := kgo.MetadataMinAge(100 * time.Millisecond)
	producer, err := kgo.NewClient(seeds, fresh, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	member, err := kgo.NewClient(
		seeds,
		fresh,
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumerGroup(todo.Group),
		kgo.ConsumeTopics(todo.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AutoCommitInterval(time.Second),
	)
	if err != nil {
		producer.Close()
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	made := &stream{
		topic:    todo.Topic,
		producer: producer,
		member:   member,
		cancel:   cancel,
		stopping: make(chan struct{}),
		sent:     make([][]int64, todo.Count),
		acked:    make([]int, todo.Count),
		read:     make([][][2]int64, todo.Count),
	}
	streams[todo.Handle] = made
	made.sending.Add(1)
	made.reading.Add(1)
	go made.send(time.Duration(todo.IntervalMs) * time.Millisecond)
	go made.receive(ctx)
	return nil
}

func (s *stream) send(interval time.Duration) {
	defer s.sending.Done()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for number := 0; ; number++ {
		select {
		case <-s.stopping:
			return
		case <-ticker.C:
		}
		for partition := range s.sent {
			s.lock.Lock()
			s.sent[partition] = append(s.sent[partition], -1)
			s.lock.Unlock()
			record := &kgo.Record{
				Topic:     s.topic,
				Partition: int32(partition),
				Value:     []byte(strconv.Itoa(number)),
			}
			s.producer.Produce(context.Background(), record, func(record *kgo.Record, err error) {
				s.lock.Lock()
				defer s.lock.Unlock()
				if err != nil {
					s.failure = err
					return
				}
				s.sent[partition][number] = record.Offset
				s.acked[partition]++
			})
		}
	}
}

func (s *stream) receive(ctx context.Context) {
	defer s.reading.Done()
	for {
		fetches := s.member.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		s.lock.Lock()
		if err := fetches.Err(); err != nil {
			s.failure = err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			number, err := strconv.ParseInt(string(record.Value), 10, 64)
			if err != nil {
				s.failure = err
			}
			s.read[record.Partition] = append(s.read[record.Partition], [2]int64{record.Offset, number})
		})
		s.lock.Unlock()
	}
}

func (s *stream) report(result response) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	result["acknowledged"] = append([]int{}, s.acked...)
	result["positions"] = s.positions()
	return s.failure
}

// The offset after the last record that was read from each partition.
func (s *stream) positions() []int64 {
	positions := make([]int64, len(s.read))
	for partition, records := range s.read {
		if len(records) > 0 {
			positions[partition] = records[len(records)-1][0] + 1
		}
	}
	return positions
}

func (s *stream) hasReadAll() bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	for partition, position := range s.positions() {
		if position < int64(len(s.sent[partition])) {
			return false
		}
	}
	return true
}

func endStream(ctx context.Context, todo job, result response) error {
	s := streams[todo.Handle]
	delete(streams, todo.Handle)
	defer s.producer.Close()
	defer s.member.Close()
	close(s.stopping)
	s.sending.Wait()
	err := s.producer.Flush(ctx)
	for err == nil && !s.hasReadAll() {
		select {
		case <-ctx.Done():
			err = fmt.Errorf("not all records were read: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	s.cancel()
	s.reading.Wait()
	if err != nil {
		return err
	}
	if err := s.member.CommitUncommittedOffsets(ctx); err != nil {
		return err
	}
	result["sent"], result["read"] = s.sent, s.read
	return s.failure
}

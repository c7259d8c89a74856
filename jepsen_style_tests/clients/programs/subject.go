// franz-go, driven by lines of JSON: clients/lines.py says what they mean.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const lineBytesMax = 8 << 20

// Request is any of the driver's lines; each kind uses some of its fields.
type Request struct {
	ID             int      `json:"id"`
	F              string   `json:"f"`
	Bootstrap      string   `json:"bootstrap"`
	Seconds        float64  `json:"seconds"`
	RequestSeconds float64  `json:"request_seconds"`
	Topic          string   `json:"topic"`
	Partition      int32    `json:"partition"`
	Value          string   `json:"value"`
	Positions      [][3]any `json:"positions"`
}

// Subject is a producer and a consumer.
type Subject struct {
	shared   []kgo.Opt
	patience time.Duration
	producer *kgo.Client
	consumer *kgo.Client
}

func main() {
	subject := &Subject{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineBytesMax)
	// The input's end is a crash: nothing that is in flight is waited for.
	for lines.Scan() {
		var request Request
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
			panic(err)
		}
		subject.take(request)
	}
}

func (s *Subject) take(request Request) {
	var value any
	var err error
	switch request.F {
	case "open":
		err = s.open(request)
	case "send":
		s.send(request) // it answers when it knows
		return
	case "assign":
		err = s.assign(request)
	case "poll":
		value, err = s.poll(request)
	case "end":
		value, err = s.end(request)
	default:
		panic("no such request: " + request.F)
	}
	answer(request, value, err)
}

func seconds(number float64) time.Duration {
	return time.Duration(number * float64(time.Second))
}

// open makes an idempotent producer, whatever is asked for: without idempotence franz-go sends a
// batch again whose connection broke, and may then double a record.
func (s *Subject) open(request Request) error {
	s.patience = seconds(request.Seconds)
	s.shared = []kgo.Opt{
		kgo.SeedBrokers(strings.Split(request.Bootstrap, ",")...),
		kgo.RetryTimeout(s.patience),
		kgo.RequestTimeoutOverhead(seconds(request.RequestSeconds)),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.MetadataMaxAge(2 * time.Second),
	}
	var err error
	s.producer, err = kgo.NewClient(append(s.shared,
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
		kgo.ProduceRequestTimeout(seconds(request.RequestSeconds)),
		kgo.RecordDeliveryTimeout(s.patience),
	)...)
	return err
}

func (s *Subject) send(request Request) {
	record := &kgo.Record{
		Topic:     request.Topic,
		Partition: request.Partition,
		Value:     []byte(request.Value),
	}
	s.producer.Produce(context.Background(), record, func(record *kgo.Record, err error) {
		answer(request, record.Offset, err)
	})
}

// assign takes another consumer: it begins at exactly these positions, with nothing fetched.
func (s *Subject) assign(request Request) error {
	positions := map[string]map[int32]kgo.Offset{}
	for _, each := range request.Positions {
		topic, partition, offset := each[0].(string), each[1].(float64), each[2].(float64)
		if positions[topic] == nil {
			positions[topic] = map[int32]kgo.Offset{}
		}
		positions[topic][int32(partition)] = kgo.NewOffset().At(int64(offset))
	}
	if s.consumer != nil {
		s.consumer.Close()
	}
	var err error
	s.consumer, err = kgo.NewClient(append(s.shared,
		kgo.ConsumePartitions(positions),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(50*time.Millisecond),
	)...)
	return err
}

func (s *Subject) poll(request Request) ([][]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), seconds(request.Seconds))
	defer cancel()
	fetches := s.consumer.PollFetches(ctx)
	found := [][]any{}
	fetches.EachRecord(func(each *kgo.Record) {
		found = append(found, []any{each.Topic, each.Partition, each.Offset, string(each.Value)})
	})
	for _, each := range fetches.Errors() {
		// Records that came beside an error are told: they will not be polled again.
		if !errors.Is(each.Err, context.DeadlineExceeded) && len(found) == 0 {
			return nil, each.Err
		}
	}
	return found, nil
}

func (s *Subject) end(request Request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.patience)
	defer cancel()
	listed, err := kadm.NewClient(s.producer).ListEndOffsets(ctx, request.Topic)
	if err != nil {
		return nil, err
	}
	found, ok := listed.Lookup(request.Topic, request.Partition)
	if !ok {
		return nil, fmt.Errorf("no end of %s/%d", request.Topic, request.Partition)
	}
	return found.Offset, found.Err
}

var speaking sync.Mutex

// answer says how it went. Only what the client refuses by itself is certain. All else, a timeout
// too, is not.
func answer(request Request, value any, err error) {
	line := map[string]any{"id": request.ID}
	switch {
	case err == nil:
		line["type"], line["value"] = "ok", value
	case errors.Is(err, kerr.MessageTooLarge):
		line["type"], line["error"] = "fail", err.Error()
	default:
		line["type"], line["error"] = "info", err.Error()
	}
	speaking.Lock()
	defer speaking.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		panic(err)
	}
}

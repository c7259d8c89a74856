// franz-go, with its administration client kadm.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func administer(place Place, call func(*kadm.Client) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(place.servers...))
	if err != nil {
		return err
	}
	defer client.Close()
	return call(kadm.NewClient(client))
}

func administration(call func(context.Context, *kadm.Client, Place) error) Function {
	return func(ctx context.Context, place Place) error {
		return administer(place, func(admin *kadm.Client) error { return call(ctx, admin, place) })
	}
}

func create(ctx context.Context, admin *kadm.Client, place Place) error {
	retention := "3600000"
	_, err := admin.CreateTopic(ctx, 2, 3, map[string]*string{"retention.ms": &retention}, place.topic())
	return err
}

func grow(ctx context.Context, admin *kadm.Client, place Place) error {
	answer, err := admin.UpdatePartitions(ctx, 3, place.topic())
	if err != nil {
		return err
	}
	return answer.Error()
}

func describe(ctx context.Context, admin *kadm.Client, place Place) error {
	topics, err := admin.ListTopics(ctx, place.topic())
	if err != nil {
		return err
	}
	var replicas [][]int32
	for _, partition := range topics[place.topic()].Partitions.Sorted() {
		slices.Sort(partition.Replicas)
		replicas = append(replicas, partition.Replicas)
	}
	return expect(replicas, [][]int32{{1, 2, 3}, {1, 2, 3}}, "replicas")
}

func remove(ctx context.Context, admin *kadm.Client, place Place) error {
	_, err := admin.DeleteTopic(ctx, place.topic())
	return err
}

func describeConfigs(ctx context.Context, admin *kadm.Client, place Place) error {
	topics, err := admin.DescribeTopicConfigs(ctx, place.topic())
	if err != nil {
		return err
	}
	topic, err := topics.On(place.topic(), nil)
	if err != nil {
		return err
	}
	for _, config := range topic.Configs {
		if config.Key == "retention.ms" {
			return expect(config.MaybeValue(), "3600000", "retention.ms")
		}
	}
	return fmt.Errorf("no retention.ms among %d settings", len(topic.Configs))
}

func alterConfigs(ctx context.Context, admin *kadm.Client, place Place) error {
	retention := "7200000"
	change := []kadm.AlterConfig{{Name: "retention.ms", Value: &retention}}
	answers, err := admin.AlterTopicConfigs(ctx, change, place.topic())
	if err != nil {
		return err
	}
	answer, err := answers.On(place.topic(), nil)
	if err != nil {
		return err
	}
	return answer.Err
}

func produce(options ...kgo.Opt) Function {
	return func(ctx context.Context, place Place) error {
		return write(ctx, place, options, func(client *kgo.Client, records []*kgo.Record) error {
			return client.ProduceSync(ctx, records...).FirstErr()
		})
	}
}

func transaction(ctx context.Context, place Place) error {
	options := []kgo.Opt{kgo.TransactionalID(place.group())}
	return write(ctx, place, options, func(client *kgo.Client, records []*kgo.Record) error {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return err
		}
		return client.EndTransaction(ctx, kgo.TryCommit)
	})
}

func write(
	ctx context.Context, place Place, options []kgo.Opt,
	call func(*kgo.Client, []*kgo.Record) error,
) error {
	options = append([]kgo.Opt{
		kgo.SeedBrokers(place.servers...),
		kgo.DefaultProduceTopic(place.topic()),
	}, options...)
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	var records []*kgo.Record
	for _, value := range values(place) {
		records = append(records, kgo.StringRecord(value))
	}
	return call(client, records)
}

func read(ctx context.Context, place Place, count int, options ...kgo.Opt) ([]string, error) {
	options = append(options, kgo.SeedBrokers(place.servers...))
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.CloseAllowingRebalance()
	var found []string
	for len(found) < count {
		fetches := client.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			return nil, errs[0].Err
		}
		fetches.EachRecord(func(record *kgo.Record) { found = append(found, string(record.Value)) })
	}
	if group, _ := client.GroupMetadata(); group != "" {
		return found, client.CommitUncommittedOffsets(ctx)
	}
	return found, nil
}

func readAll(ctx context.Context, place Place, options ...kgo.Opt) error {
	found, err := read(ctx, place, filledPartitions*filledRecords, options...)
	if err != nil {
		return err
	}
	return expectFilled(found)
}

func consume(ctx context.Context, place Place) error {
	partitions := map[int32]kgo.Offset{}
	for partition := range int32(filledPartitions) {
		partitions[partition] = kgo.NewOffset().AtStart()
	}
	return readAll(ctx, place, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{place.filled(): partitions}))
}

func consumeTime(ctx context.Context, place Place) error {
	from := map[int32]kgo.Offset{1: kgo.NewOffset().AfterMilli(timeMillis)}
	found, err := read(ctx, place, 1, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{place.filled(): from}))
	if err != nil {
		return err
	}
	return expect(found[0], "1:5", "the first record")
}

func deleteRecords(ctx context.Context, admin *kadm.Client, place Place) error {
	offsets := kadm.Offsets{}
	offsets.AddOffset(place.topic(), 0, 5, -1)
	answer, err := admin.DeleteRecords(ctx, offsets)
	if err != nil {
		return err
	}
	return answer.Error()
}

func reassign(ctx context.Context, admin *kadm.Client, place Place) error {
	var moves kadm.AlterPartitionAssignmentsReq
	moves.Assign(place.topic(), 0, []int32{2})
	answer, err := admin.AlterPartitionAssignments(ctx, moves)
	if err != nil {
		return err
	}
	return answer.Error()
}

func listGroups(ctx context.Context, admin *kadm.Client, place Place) error {
	listed, err := admin.ListGroups(ctx)
	if err != nil {
		return err
	}
	return expectAmong(place.knownGroup(), listed.Groups(), "groups")
}

func group(ctx context.Context, place Place) error {
	start := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	return readAll(ctx, place, kgo.ConsumerGroup(place.group()), kgo.ConsumeTopics(place.filled()), start)
}

// kip848 asks for the new protocol. franz-go falls back to the classic one, in silence, where the
// broker does not advertise the new one, or answers UNSUPPORTED_VERSION.
func kip848(ctx context.Context, place Place) error {
	start := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	balancer := kgo.Balancers(kgo.RangeBalancer())
	group := kgo.ConsumerGroup(place.group())
	topics := kgo.ConsumeTopics(place.filled())
	return readAll(ctx, place, kgo.ServerSideBalancer(), balancer, group, topics, start)
}

// ask calls the admin listener of every broker: those that have a fault of one id count together.
func ask(ctx context.Context, method, path, body string, judge func(status int, body []byte) error) error {
	for _, admin := range strings.Split(os.Getenv("RAFTLOG_ADMIN"), ",") {
		request, err := http.NewRequestWithContext(ctx, method, "http://"+admin+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			return err
		}
		if err := judge(answer.StatusCode, text); err != nil {
			return err
		}
	}
	return nil
}

func lostAnswer(ctx context.Context, place Place) error {
	id := place.topic()
	fault := fmt.Sprintf(`{"id": %q, "do": "drop_response", "on": "Produce", "topic": %q, "times": 1}`, id, id)
	err := ask(ctx, "POST", "/faults", fault, func(status int, _ []byte) error { return expect(status, 201, "status") })
	if err != nil {
		return err
	}
	impatient := produce(kgo.ProduceRequestTimeout(time.Second), kgo.RequestTimeoutOverhead(time.Second))
	if err := impatient(ctx, place); err != nil {
		return err
	}
	return ask(ctx, "DELETE", "/faults/"+id, "", func(_ int, body []byte) error {
		var told struct{ Removed []struct{ Used int } }
		if err := json.Unmarshal(body, &told); err != nil {
			return err
		}
		return expect(told.Removed[0].Used, 1, "lost answers")
	})
}

func main() {
	plain := kgo.DisableIdempotentWrite()
	codec := func(codec kgo.CompressionCodec) Function { return produce(kgo.ProducerBatchCompression(codec)) }
	features := map[string]Function{
		"create":           administration(create),
		"grow":             administration(grow),
		"describe":         administration(describe),
		"delete":           administration(remove),
		"describe-configs": administration(describeConfigs),
		"alter-configs":    administration(alterConfigs),
		"produce-none":     codec(kgo.NoCompression()),
		"produce-gzip":     codec(kgo.GzipCompression()),
		"produce-snappy":   codec(kgo.SnappyCompression()),
		"produce-lz4":      codec(kgo.Lz4Compression()),
		"produce-zstd":     codec(kgo.ZstdCompression()),
		"acks-0":           produce(plain, kgo.RequiredAcks(kgo.NoAck())),
		"acks-1":           produce(plain, kgo.RequiredAcks(kgo.LeaderAck())),
		"acks-all":         produce(plain, kgo.RequiredAcks(kgo.AllISRAcks())),
		"idempotent":       produce(),
		"consume":          consume,
		"consume-time":     consumeTime,
		"delete-records":   administration(deleteRecords),
		"reassign":         administration(reassign),
		"list-groups":      administration(listGroups),
		"group":            group,
		"transaction":      transaction,
		"kip-848":          kip848,
	}
	maps.Copy(features, own())
	speak("github.com/twmb/franz-go", features)
}

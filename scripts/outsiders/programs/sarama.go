// sarama, IBM's client (once Shopify's).
//
//	PROGRAM RELEASE BOOTSTRAP PREFIX FEATURE...
//
// RELEASE is the release of Kafka that sarama speaks: a number, or its own default or newest.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// release is the newest release of Kafka whose requests sarama sends.
var release sarama.KafkaVersion

func releaseNamed(name string) sarama.KafkaVersion {
	switch name {
	case "default":
		return sarama.DefaultVersion
	case "newest":
		return sarama.MaxVersion
	}
	version, err := sarama.ParseKafkaVersion(name)
	if err != nil {
		panic(err)
	}
	return version
}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = release
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Metadata.Retry.Max = 2
	config.Admin.Timeout = 12 * time.Second
	config.Net.ReadTimeout = 12 * time.Second
	return config
}

func administration(call func(sarama.ClusterAdmin, Place) error) Function {
	return bounded(func(_ context.Context, place Place) error {
		admin, err := sarama.NewClusterAdmin(place.servers, config())
		if err != nil {
			return err
		}
		defer admin.Close()
		return call(admin, place)
	})
}

// bounded ends a call that takes no context: the goroutine is left behind.
func bounded(function Function) Function {
	return func(ctx context.Context, place Place) error {
		done := make(chan error, 1)
		go func() { done <- function(ctx, place) }()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func create(admin sarama.ClusterAdmin, place Place) error {
	retention := "3600000"
	detail := &sarama.TopicDetail{
		NumPartitions:     2,
		ReplicationFactor: 3,
		ConfigEntries:     map[string]*string{"retention.ms": &retention},
	}
	return admin.CreateTopic(place.topic(), detail, false)
}

func grow(admin sarama.ClusterAdmin, place Place) error {
	return admin.CreatePartitions(place.topic(), 3, nil, false)
}

func describe(admin sarama.ClusterAdmin, place Place) error {
	topics, err := admin.DescribeTopics([]string{place.topic()})
	if err != nil {
		return err
	}
	var replicas [][]int32
	for _, partition := range topics[0].Partitions {
		slices.Sort(partition.Replicas)
		replicas = append(replicas, partition.Replicas)
	}
	return expect(replicas, [][]int32{{1, 2, 3}, {1, 2, 3}}, "replicas")
}

func remove(admin sarama.ClusterAdmin, place Place) error {
	return admin.DeleteTopic(place.topic())
}

func describeConfigs(admin sarama.ClusterAdmin, place Place) error {
	resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: place.topic()}
	entries, err := admin.DescribeConfig(resource)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name == "retention.ms" {
			return expect(entry.Value, "3600000", "retention.ms")
		}
	}
	return fmt.Errorf("no retention.ms among %d settings", len(entries))
}

func alterConfigs(admin sarama.ClusterAdmin, place Place) error {
	retention := "7200000"
	change := sarama.IncrementalAlterConfigsEntry{
		Operation: sarama.IncrementalAlterConfigsOperationSet,
		Value:     &retention,
	}
	changes := map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": change}
	return admin.IncrementalAlterConfig(sarama.TopicResource, place.topic(), changes, false)
}

func produce(change func(*sarama.Config)) Function {
	return bounded(func(_ context.Context, place Place) error {
		return write(place, change, func(sarama.SyncProducer) error { return nil }, nil)
	})
}

func transaction(_ context.Context, place Place) error {
	change := func(config *sarama.Config) {
		idempotent(config)
		config.Producer.Transaction.ID = place.group()
	}
	return write(place, change, sarama.SyncProducer.BeginTxn, sarama.SyncProducer.CommitTxn)
}

func idempotent(config *sarama.Config) {
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
}

func write(place Place, change func(*sarama.Config), before, after func(sarama.SyncProducer) error) error {
	settings := config()
	change(settings)
	producer, err := sarama.NewSyncProducer(place.servers, settings)
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := before(producer); err != nil {
		return err
	}
	var messages []*sarama.ProducerMessage
	for _, value := range values(place) {
		messages = append(messages, &sarama.ProducerMessage{
			Topic: place.topic(), Value: sarama.StringEncoder(value),
		})
	}
	if err := producer.SendMessages(messages); err != nil {
		var failures sarama.ProducerErrors
		if errors.As(err, &failures) {
			return failures[0].Err
		}
		return err
	}
	if after == nil {
		return nil
	}
	return after(producer)
}

func readPartition(ctx context.Context, client sarama.Client, topic string, partition int32, offset int64, count int) ([]string, error) {
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	records, err := consumer.ConsumePartition(topic, partition, offset)
	if err != nil {
		return nil, err
	}
	defer records.Close()
	var found []string
	for len(found) < count {
		select {
		case message := <-records.Messages():
			found = append(found, string(message.Value))
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return found, nil
}

func consume(ctx context.Context, place Place) error {
	client, err := sarama.NewClient(place.servers, config())
	if err != nil {
		return err
	}
	defer client.Close()
	var all []string
	for partition := range int32(filledPartitions) {
		found, err := readPartition(ctx, client, place.filled(), partition, sarama.OffsetOldest, filledRecords)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	return expectFilled(all)
}

func consumeTime(ctx context.Context, place Place) error {
	client, err := sarama.NewClient(place.servers, config())
	if err != nil {
		return err
	}
	defer client.Close()
	offset, err := client.GetOffset(place.filled(), 1, timeMillis)
	if err != nil {
		return err
	}
	found, err := readPartition(ctx, client, place.filled(), 1, offset, 1)
	if err != nil {
		return err
	}
	return expect(found[0], "1:5", "the first record")
}

func deleteRecords(admin sarama.ClusterAdmin, place Place) error {
	return admin.DeleteRecords(place.topic(), map[int32]int64{0: 5})
}

func reassign(admin sarama.ClusterAdmin, place Place) error {
	return admin.AlterPartitionReassignments(place.topic(), [][]int32{{2}})
}

func listGroups(admin sarama.ClusterAdmin, place Place) error {
	listed, err := admin.ListConsumerGroups()
	if err != nil {
		return err
	}
	return expectAmong(place.knownGroup(), slices.Collect(maps.Keys(listed)), "groups")
}

// member collects what a group hands to it.
type member struct{ values chan string }

func (member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		m.values <- string(message.Value)
	}
	return nil
}

func group(ctx context.Context, place Place) error {
	reader, err := sarama.NewConsumerGroup(place.servers, place.group(), config())
	if err != nil {
		return err
	}
	defer reader.Close()
	each := member{make(chan string, filledPartitions*filledRecords)}
	ended := make(chan error, 1)
	go func() { ended <- reader.Consume(ctx, []string{place.filled()}, each) }()
	var found []string
	for len(found) < filledPartitions*filledRecords {
		select {
		case value := <-each.values:
			found = append(found, value)
		case err := <-ended:
			if err == nil {
				err = fmt.Errorf("the session ended after %d records", len(found))
			}
			return err
		}
	}
	return expectFilled(found)
}

func main() {
	sarama.Logger = log.New(io.Discard, "", 0)
	release = releaseNamed(os.Args[1])
	os.Args = slices.Delete(os.Args, 1, 2)
	codec := func(codec sarama.CompressionCodec) Function {
		return produce(func(config *sarama.Config) { config.Producer.Compression = codec })
	}
	acks := func(acks sarama.RequiredAcks) Function {
		return produce(func(config *sarama.Config) { config.Producer.RequiredAcks = acks })
	}
	features := map[string]Function{
		"create":           administration(create),
		"grow":             administration(grow),
		"describe":         administration(describe),
		"delete":           administration(remove),
		"describe-configs": administration(describeConfigs),
		"alter-configs":    administration(alterConfigs),
		"produce-none":     codec(sarama.CompressionNone),
		"produce-gzip":     codec(sarama.CompressionGZIP),
		"produce-snappy":   codec(sarama.CompressionSnappy),
		"produce-lz4":      codec(sarama.CompressionLZ4),
		"produce-zstd":     codec(sarama.CompressionZSTD),
		"acks-0":           acks(sarama.NoResponse),
		"acks-1":           acks(sarama.WaitForLocal),
		"acks-all":         acks(sarama.WaitForAll),
		"idempotent":       produce(idempotent),
		"consume":          consume,
		"consume-time":     consumeTime,
		"delete-records":   administration(deleteRecords),
		"reassign":         administration(reassign),
		"list-groups":      administration(listGroups),
		"group":            bounded(group),
		"transaction":      bounded(transaction),
		"kip-848":          absent("sarama has the classic group protocol alone"),
	}
	maps.Copy(features, own())
	speak("github.com/IBM/sarama", features)
}

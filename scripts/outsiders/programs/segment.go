// kafka-go, Segment's client.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
)

func client(place Place) *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(place.servers...), Timeout: 12 * time.Second}
}

func create(ctx context.Context, place Place) error {
	retention := []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "3600000"}}
	topic := kafka.TopicConfig{Topic: place.topic(), NumPartitions: 2, ReplicationFactor: 3, ConfigEntries: retention}
	answer, err := client(place).CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
	if err != nil {
		return err
	}
	return answer.Errors[place.topic()]
}

func grow(ctx context.Context, place Place) error {
	change := []kafka.TopicPartitionsConfig{{Name: place.topic(), Count: 3}}
	answer, err := client(place).CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: change})
	if err != nil {
		return err
	}
	return answer.Errors[place.topic()]
}

func describe(ctx context.Context, place Place) error {
	answer, err := client(place).Metadata(ctx, &kafka.MetadataRequest{Topics: []string{place.topic()}})
	if err != nil {
		return err
	}
	var replicas [][]int
	for _, partition := range answer.Topics[0].Partitions {
		var nodes []int
		for _, replica := range partition.Replicas {
			nodes = append(nodes, replica.ID)
		}
		slices.Sort(nodes)
		replicas = append(replicas, nodes)
	}
	return expect(replicas, [][]int{{1, 2, 3}, {1, 2, 3}}, "replicas")
}

func remove(ctx context.Context, place Place) error {
	answer, err := client(place).DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{place.topic()}})
	if err != nil {
		return err
	}
	return answer.Errors[place.topic()]
}

func describeConfigs(ctx context.Context, place Place) error {
	resource := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: place.topic()}
	request := &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{resource}}
	answer, err := client(place).DescribeConfigs(ctx, request)
	if err != nil {
		return err
	}
	for _, entry := range answer.Resources[0].ConfigEntries {
		if entry.ConfigName == "retention.ms" {
			return expect(entry.ConfigValue, "3600000", "retention.ms")
		}
	}
	return errors.Join(fmt.Errorf("no retention.ms"), answer.Resources[0].Error)
}

func alterConfigs(ctx context.Context, place Place) error {
	resource := kafka.IncrementalAlterConfigsRequestResource{
		ResourceType: kafka.ResourceTypeTopic,
		ResourceName: place.topic(),
		Configs: []kafka.IncrementalAlterConfigsRequestConfig{
			{Name: "retention.ms", Value: "7200000", ConfigOperation: kafka.ConfigOperationSet},
		},
	}
	request := &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{resource},
	}
	answer, err := client(place).IncrementalAlterConfigs(ctx, request)
	if err != nil {
		return err
	}
	return answer.Resources[0].Error
}

func produce(acks kafka.RequiredAcks, codec kafka.Compression) Function {
	return func(ctx context.Context, place Place) error {
		writer := &kafka.Writer{
			Addr:         kafka.TCP(place.servers...),
			Topic:        place.topic(),
			RequiredAcks: acks,
			Compression:  codec,
			BatchTimeout: 10 * time.Millisecond,
		}
		defer writer.Close()
		var messages []kafka.Message
		for _, value := range values(place) {
			messages = append(messages, kafka.Message{Value: []byte(value)})
		}
		err := writer.WriteMessages(ctx, messages...)
		var failures kafka.WriteErrors
		if errors.As(err, &failures) {
			return failures[0]
		}
		return err
	}
}

func reader(place Place, group string, partition int) *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{
		Brokers:     place.servers,
		Topic:       place.filled(),
		GroupID:     group,
		Partition:   partition,
		MaxWait:     200 * time.Millisecond,
		StartOffset: kafka.FirstOffset,
		MaxAttempts: 2,
	})
}

func read(ctx context.Context, reader *kafka.Reader, count int) ([]string, error) {
	var found []string
	for len(found) < count {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return nil, err
		}
		found = append(found, string(message.Value))
	}
	return found, nil
}

func consume(ctx context.Context, place Place) error {
	var all []string
	for partition := range filledPartitions {
		reader := reader(place, "", partition)
		defer reader.Close()
		found, err := read(ctx, reader, filledRecords)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	return expectFilled(all)
}

func consumeTime(ctx context.Context, place Place) error {
	reader := reader(place, "", 1)
	defer reader.Close()
	if err := reader.SetOffsetAt(ctx, time.UnixMilli(timeMillis)); err != nil {
		return err
	}
	found, err := read(ctx, reader, 1)
	if err != nil {
		return err
	}
	return expect(found[0], "1:5", "the first record")
}

func reassign(ctx context.Context, place Place) error {
	move := kafka.AlterPartitionReassignmentsRequestAssignment{PartitionID: 0, BrokerIDs: []int{2}}
	answer, err := client(place).AlterPartitionReassignments(ctx, &kafka.AlterPartitionReassignmentsRequest{
		Topic:       place.topic(),
		Assignments: []kafka.AlterPartitionReassignmentsRequestAssignment{move},
		Timeout:     12 * time.Second,
	})
	if err != nil {
		return err
	}
	return errors.Join(answer.Error, answer.PartitionResults[0].Error)
}

func listGroups(ctx context.Context, place Place) error {
	answer, err := client(place).ListGroups(ctx, &kafka.ListGroupsRequest{})
	if err != nil {
		return err
	}
	if answer.Error != nil {
		return answer.Error
	}
	var listed []string
	for _, each := range answer.Groups {
		listed = append(listed, each.GroupID)
	}
	return expectAmong(place.knownGroup(), listed, "groups")
}

func group(ctx context.Context, place Place) error {
	reader := reader(place, place.group(), 0)
	defer reader.Close()
	found, err := read(ctx, reader, filledPartitions*filledRecords)
	if err != nil {
		return err
	}
	return expectFilled(found)
}

// transaction goes as far as kafka-go can: it has the requests, and no producer that sends records
// inside a transaction.
func transaction(ctx context.Context, place Place) error {
	request := &kafka.InitProducerIDRequest{TransactionalID: place.group(), TransactionTimeoutMs: 10000}
	answer, err := client(place).InitProducerID(ctx, request)
	if err != nil {
		return err
	}
	if answer.Error != nil {
		return answer.Error
	}
	return errAbsent("kafka-go has the requests of a transaction, and no producer that uses them")
}

func main() {
	codec := func(codec kafka.Compression) Function { return produce(kafka.RequireAll, codec) }
	features := map[string]Function{
		"create":           create,
		"grow":             grow,
		"describe":         describe,
		"delete":           remove,
		"describe-configs": describeConfigs,
		"alter-configs":    alterConfigs,
		"produce-none":     codec(0),
		"produce-gzip":     codec(kafka.Gzip),
		"produce-snappy":   codec(kafka.Snappy),
		"produce-lz4":      codec(kafka.Lz4),
		"produce-zstd":     codec(kafka.Zstd),
		"acks-0":           produce(kafka.RequireNone, 0),
		"acks-1":           produce(kafka.RequireOne, 0),
		"acks-all":         produce(kafka.RequireAll, 0),
		"idempotent":       absent("kafka-go has no idempotent producer"),
		"consume":          consume,
		"consume-time":     consumeTime,
		"delete-records":   absent("kafka-go has no DeleteRecords"),
		"reassign":         reassign,
		"list-groups":      listGroups,
		"group":            group,
		"transaction":      transaction,
		"kip-848":          absent("kafka-go has the classic group protocol alone"),
	}
	maps.Copy(features, own())
	speak("github.com/segmentio/kafka-go", features)
}

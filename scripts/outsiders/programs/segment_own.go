// What kafka-go alone is asked, beside the features of every client.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
)

func own() map[string]Function {
	return map[string]Function{
		"write-created":       written(func(context.Context, Place) error { return nil }),
		"write-grown":         written(grow),
		"api-versions":        apiVersions,
		"alter-configs-whole": alterConfigsWhole,
		"create-controller":   createAtController,
		"connection":          connection,
		"produce-raw":         produceRaw,
		"list-offsets":        listOffsets,
		"describe-groups":     describeGroups,
	}
}

// written writes into every partition as soon as the change of the topic has been answered: by then
// every broker must name the leaders. It does so several times, for a broker may be late once.
func written(change func(ctx context.Context, place Place) error) Function {
	return func(ctx context.Context, place Place) error {
		for attempt := range 4 {
			place := Place{place.servers, place.prefix, fmt.Sprintf("%s-%d", place.feature, attempt)}
			if err := create(ctx, place); err != nil {
				return err
			}
			if err := change(ctx, place); err != nil {
				return err
			}
			writer := &kafka.Writer{
				Addr:  kafka.TCP(place.servers...),
				Topic: place.topic(),
				// The shared one may have asked by itself in the middle of the change, and keeps that for 6 s.
				Transport:    &kafka.Transport{},
				RequiredAcks: kafka.RequireAll,
				Balancer:     &kafka.RoundRobin{},
				BatchTimeout: 5 * time.Millisecond,
				MaxAttempts:  1,
			}
			err := writer.WriteMessages(ctx, make([]kafka.Message, 12)...)
			writer.Close()
			var failures kafka.WriteErrors
			if errors.As(err, &failures) {
				return errors.Join(failures...)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func apiVersions(ctx context.Context, place Place) error {
	answer, err := client(place).ApiVersions(ctx, &kafka.ApiVersionsRequest{})
	if err != nil {
		return err
	}
	return errors.Join(answer.Error, expect(len(answer.ApiKeys) > 20, true, "more than 20 requests"))
}

// alterConfigsWhole replaces all settings of a topic, as clients did before Kafka 2.3.
func alterConfigsWhole(ctx context.Context, place Place) error {
	resource := kafka.AlterConfigRequestResource{
		ResourceType: kafka.ResourceTypeTopic,
		ResourceName: place.prefix + "-work",
		Configs:      []kafka.AlterConfigRequestConfig{{Name: "retention.ms", Value: "3600000"}},
	}
	request := &kafka.AlterConfigsRequest{Resources: []kafka.AlterConfigRequestResource{resource}}
	answer, err := client(place).AlterConfigs(ctx, request)
	if err != nil {
		return err
	}
	for _, err := range answer.Errors {
		if err != nil {
			return err
		}
	}
	return nil
}

// createAtController asks any broker for the controller, and the controller for a topic.
func createAtController(ctx context.Context, place Place) error {
	anyone, err := kafka.DialContext(ctx, "tcp", place.servers[0])
	if err != nil {
		return err
	}
	defer anyone.Close()
	found, err := anyone.Controller()
	if err != nil {
		return err
	}
	address := net.JoinHostPort(found.Host, strconv.Itoa(found.Port))
	controller, err := kafka.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer controller.Close()
	topic := kafka.TopicConfig{Topic: place.topic(), NumPartitions: 1, ReplicationFactor: 3}
	return controller.CreateTopics(topic)
}

// connection writes and reads over one connection to a partition's leader.
func connection(ctx context.Context, place Place) error {
	leader, err := kafka.DialLeader(ctx, "tcp", place.servers[0], place.prefix+"-work", 1)
	if err != nil {
		return err
	}
	defer leader.Close()
	if err := leader.SetDeadline(time.Now().Add(12 * time.Second)); err != nil {
		return err
	}
	end, err := leader.ReadLastOffset()
	if err != nil {
		return err
	}
	if _, err := leader.WriteMessages(kafka.Message{Value: []byte(place.feature)}); err != nil {
		return err
	}
	if _, err := leader.Seek(end, kafka.SeekAbsolute); err != nil {
		return err
	}
	found, err := leader.ReadMessage(1 << 20)
	if err != nil {
		return err
	}
	return expect(string(found.Value), place.feature, "the record")
}

func produceRaw(ctx context.Context, place Place) error {
	var records []kafka.Record
	for _, value := range values(place) {
		records = append(records, kafka.Record{Value: kafka.NewBytes([]byte(value))})
	}
	answer, err := client(place).Produce(ctx, &kafka.ProduceRequest{
		Topic:        place.topic(),
		RequiredAcks: kafka.RequireAll,
		Records:      kafka.NewRecordReader(records...),
	})
	if err != nil {
		return err
	}
	return errors.Join(answer.Error, expect(answer.BaseOffset, 0, "base offset"))
}

// listOffsets asks for the start, the end and a time at once.
func listOffsets(ctx context.Context, place Place) error {
	at := time.UnixMilli(timeMillis)
	asked := []kafka.OffsetRequest{kafka.FirstOffsetOf(1), kafka.LastOffsetOf(1), kafka.TimeOffsetOf(1, at)}
	request := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{place.filled(): asked}}
	answer, err := client(place).ListOffsets(ctx, request)
	if err != nil {
		return err
	}
	found := answer.Topics[place.filled()][0]
	_, timed := found.Offsets[5]
	told := fmt.Sprint(found.FirstOffset, found.LastOffset, timed)
	return errors.Join(found.Error, expect(told, fmt.Sprint(0, filledRecords, true), "start, end, time"))
}

func describeGroups(ctx context.Context, place Place) error {
	request := &kafka.DescribeGroupsRequest{GroupIDs: []string{place.knownGroup()}}
	answer, err := client(place).DescribeGroups(ctx, request)
	if err != nil {
		return err
	}
	group := answer.Groups[0]
	return errors.Join(group.Error, expect(group.GroupState, "Empty", "state"))
}

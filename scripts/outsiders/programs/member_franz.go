// A member of a consumer group on franz-go: member.go says what it does.
package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	place := placeOf()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(place.servers...),
		kgo.ConsumerGroup(place.group),
		kgo.ConsumeTopics(place.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(session),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
	)
	fail(err)
	for {
		fetches := client.PollFetches(context.Background())
		fetches.EachRecord(func(record *kgo.Record) { processed(string(record.Value)) })
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			trouble(err)
		}
		client.AllowRebalance()
	}
}

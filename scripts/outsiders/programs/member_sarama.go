// A member of a consumer group on sarama: member.go says what it does.
package main

import (
	"context"
	"time"

	"github.com/IBM/sarama"
)

type handler struct{}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			processed(string(message.Value))
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func main() {
	place := placeOf()
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = 200 * time.Millisecond
	config.Consumer.Group.Session.Timeout = session
	config.Consumer.Group.Heartbeat.Interval = session / 5
	config.Metadata.RefreshFrequency = 5 * time.Second
	for {
		group, err := sarama.NewConsumerGroup(place.servers, place.group, config)
		if err != nil { // every broker may be down for a moment
			trouble(err)
			continue
		}
		// Consume returns at each rebalance; the example of sarama calls it in a loop.
		for err == nil {
			err = group.Consume(context.Background(), []string{place.topic}, handler{})
		}
		trouble(err)
		group.Close()
	}
}

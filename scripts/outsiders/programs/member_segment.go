// A member of a consumer group on kafka-go: member.go says what it does.
package main

import (
	"context"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	place := placeOf()
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:           place.servers,
		GroupID:           place.group,
		Topic:             place.topic,
		StartOffset:       kafka.FirstOffset,
		SessionTimeout:    session,
		HeartbeatInterval: session / 5,
		RebalanceTimeout:  2 * session,
		MaxWait:           200 * time.Millisecond,
	})
	for {
		message, err := reader.FetchMessage(context.Background())
		if err != nil {
			trouble(err)
			continue
		}
		processed(string(message.Value))
		if err := reader.CommitMessages(context.Background(), message); err != nil {
			trouble(err)
		}
	}
}

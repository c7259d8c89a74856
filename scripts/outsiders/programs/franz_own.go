// What franz-go alone is asked, beside the features of every client.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const brokers = 3

func own() map[string]Function {
	committed := kgo.FetchIsolationLevel(kgo.ReadCommitted())
	start := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	return map[string]Function{
		"leaders-shown":      leadersShown,
		"api-versions":       administration(apiVersions),
		"epoch-end":          administration(epochEnd),
		"max-timestamp":      administration(maxTimestamp),
		"describe-groups":    administration(describeGroups),
		"group-offsets":      administration(groupOffsets),
		"elect-leaders":      administration(electLeaders),
		"list-reassignments": administration(listReassignments),
		"describe-log-dirs":  administration(describeLogDirs),
		"describe-producers": administration(describeProducers),
		"describe-acls":      administration(describeACLs),
		"subscribe-alone":    subscribeAlone(start),
		"read-committed":     subscribeAlone(start, committed),
		"lost-answer":        lostAnswer,
	}
}

// leadersShown makes and grows topics, and asks every broker for the leaders as soon as the change
// has been answered.
func leadersShown(ctx context.Context, place Place) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(place.servers...))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	for attempt := range 4 {
		topic := fmt.Sprintf("%s-%d", place.topic(), attempt)
		if _, err := admin.CreateTopic(ctx, 6, 3, nil, topic); err != nil {
			return err
		}
		if err := shown(ctx, client, topic, 6); err != nil {
			return err
		}
		answer, err := admin.UpdatePartitions(ctx, 12, topic)
		if err := errors.Join(err, answer.Error()); err != nil {
			return err
		}
		if err := shown(ctx, client, topic, 12); err != nil {
			return err
		}
	}
	return nil
}

func shown(ctx context.Context, client *kgo.Client, topic string, count int) error {
	for broker := 1; broker <= brokers; broker++ {
		asked := kmsg.NewMetadataRequestTopic()
		asked.Topic = &topic
		request := kmsg.NewPtrMetadataRequest()
		request.Topics = append(request.Topics, asked)
		answer, err := request.RequestWith(ctx, client.Broker(broker))
		if err != nil {
			return err
		}
		named := 0
		for _, partition := range answer.Topics[0].Partitions {
			if partition.ErrorCode == 0 && partition.Leader > 0 {
				named++
			}
		}
		what := fmt.Sprintf("partitions of %s whose leader broker %d names", topic, broker)
		if err := expect(named, count, what); err != nil {
			return err
		}
	}
	return nil
}

func apiVersions(ctx context.Context, admin *kadm.Client, _ Place) error {
	answers, err := admin.ApiVersions(ctx)
	if err != nil {
		return err
	}
	for _, answer := range answers {
		if answer.Err != nil {
			return answer.Err
		}
		if _, served := answer.KeyMaxVersion(kmsg.Produce.Int16()); !served {
			return fmt.Errorf("broker %d serves no Produce", answer.NodeID)
		}
	}
	return expect(len(answers), brokers, "brokers")
}

// epochEnd asks where the leader epoch of partition 1 ends: at the end of the log, for it is the
// present one.
func epochEnd(ctx context.Context, admin *kadm.Client, place Place) error {
	ends, err := admin.ListEndOffsets(ctx, place.filled())
	if err != nil {
		return err
	}
	end, _ := ends.Lookup(place.filled(), 1)
	var asked kadm.OffsetForLeaderEpochRequest
	asked.Add(place.filled(), 1, end.LeaderEpoch)
	answers, err := admin.OffsetForLeaderEpoch(ctx, asked)
	if err != nil {
		return err
	}
	answer := answers[place.filled()][1]
	return errors.Join(answer.Err, expect(answer.EndOffset, filledRecords, "end offset"))
}

func maxTimestamp(ctx context.Context, admin *kadm.Client, place Place) error {
	answers, err := admin.ListMaxTimestampOffsets(ctx, place.filled())
	if err != nil {
		return err
	}
	answer, _ := answers.Lookup(place.filled(), 1)
	return errors.Join(answer.Err, expect(answer.Offset, filledRecords-1, "offset"))
}

func describeGroups(ctx context.Context, admin *kadm.Client, place Place) error {
	answers, err := admin.DescribeGroups(ctx, place.knownGroup())
	if err != nil {
		return err
	}
	answer := answers[place.knownGroup()]
	return errors.Join(answer.Err, expect(answer.State, "Empty", "state"))
}

func groupOffsets(ctx context.Context, admin *kadm.Client, place Place) error {
	answers, err := admin.FetchOffsets(ctx, place.knownGroup())
	if err != nil {
		return err
	}
	answer, _ := answers.Lookup(place.filled(), 0)
	return errors.Join(answer.Err, expect(answer.At, knownOffset, "offset"))
}

// set is partition 1 of the filled topic, which no client moves.
func set(place Place) kadm.TopicsSet {
	var topics kadm.TopicsSet
	topics.Add(place.filled(), 1)
	return topics
}

func electLeaders(ctx context.Context, admin *kadm.Client, place Place) error {
	answers, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set(place))
	if err != nil {
		return err
	}
	if err := answers[place.filled()][1].Err; !errors.Is(err, kerr.ElectionNotNeeded) {
		return err
	}
	return nil
}

func listReassignments(ctx context.Context, admin *kadm.Client, place Place) error {
	answers, err := admin.ListPartitionReassignments(ctx, set(place))
	if err != nil {
		return err
	}
	return expect(len(answers), 0, "topics that move")
}

func describeLogDirs(ctx context.Context, admin *kadm.Client, place Place) error {
	answers, err := admin.DescribeAllLogDirs(ctx, set(place))
	if err != nil {
		return err
	}
	holding := 0
	for _, folder := range answers.Sorted() {
		if folder.Err != nil {
			return folder.Err
		}
		if partition, held := folder.Topics.Lookup(place.filled(), 1); held && partition.Size > 0 {
			holding++
		}
	}
	return expect(holding, brokers, "brokers that hold the partition")
}

func describeProducers(ctx context.Context, admin *kadm.Client, place Place) error {
	answers, err := admin.DescribeProducers(ctx, set(place))
	if err != nil {
		return err
	}
	answer := answers[place.filled()].Partitions[1]
	return errors.Join(answer.Err, expect(len(answer.ActiveProducers), 1, "producers"))
}

func describeACLs(ctx context.Context, admin *kadm.Client, _ Place) error {
	every := kadm.NewACLs().AnyResource().Allow().AllowHosts().
		Operations(kadm.OpAny).ResourcePatternType(kadm.ACLPatternAny)
	answers, err := admin.DescribeACLs(ctx, every)
	if err != nil {
		return err
	}
	for _, answer := range answers {
		if answer.Err != nil {
			return answer.Err
		}
	}
	return nil
}

// subscribeAlone reads all partitions of the topic, as no member of a group.
func subscribeAlone(options ...kgo.Opt) Function {
	return func(ctx context.Context, place Place) error {
		return readAll(ctx, place, append(options, kgo.ConsumeTopics(place.filled()))...)
	}
}

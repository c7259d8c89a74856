// What sarama alone is asked, beside the features of every client.
package main

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

func own() map[string]Function {
	return map[string]Function{
		"list-topics":             administration(listTopics),
		"describe-cluster":        administration(describeCluster),
		"describe-broker-configs": administration(describeBrokerConfigs),
		"alter-configs-whole":     administration(alterConfigsWhole),
		"describe-groups":         administration(describeGroups),
		"group-offsets":           administration(groupOffsets),
		"delete-groups":           administration(deleteGroups),
		"elect-leaders":           administration(electLeaders),
		"list-reassignments":      administration(listReassignments),
		"describe-log-dirs":       administration(describeLogDirs),
		"describe-acls":           administration(describeACLs),
	}
}

func listTopics(admin sarama.ClusterAdmin, place Place) error {
	topics, err := admin.ListTopics()
	if err != nil {
		return err
	}
	return expect(topics[place.filled()].NumPartitions, filledPartitions, "partitions")
}

func describeCluster(admin sarama.ClusterAdmin, _ Place) error {
	brokers, controller, err := admin.DescribeCluster()
	if err != nil {
		return err
	}
	for _, broker := range brokers {
		if broker.ID() == controller {
			return expect(len(brokers), 3, "brokers")
		}
	}
	return fmt.Errorf("the controller %d is none of %d brokers", controller, len(brokers))
}

func describeBrokerConfigs(admin sarama.ClusterAdmin, _ Place) error {
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.BrokerResource, Name: "1"})
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name == "log.retention.ms" {
			return nil
		}
	}
	return fmt.Errorf("no log.retention.ms among %d settings", len(entries))
}

// alterConfigsWhole replaces all settings of a topic, as clients did before Kafka 2.3.
func alterConfigsWhole(admin sarama.ClusterAdmin, place Place) error {
	retention := "3600000"
	entries := map[string]*string{"retention.ms": &retention}
	return admin.AlterConfig(sarama.TopicResource, place.prefix+"-work", entries, false)
}

func describeGroups(admin sarama.ClusterAdmin, place Place) error {
	groups, err := admin.DescribeConsumerGroups([]string{place.knownGroup()})
	if err != nil {
		return err
	}
	return expect(groups[0].State, "Empty", "state")
}

func groupOffsets(admin sarama.ClusterAdmin, place Place) error {
	partitions := map[string][]int32{place.filled(): {0}}
	answer, err := admin.ListConsumerGroupOffsets(place.knownGroup(), partitions)
	if err != nil {
		return err
	}
	return expect(answer.GetBlock(place.filled(), 0).Offset, knownOffset, "offset")
}

func deleteGroups(admin sarama.ClusterAdmin, place Place) error {
	return admin.DeleteConsumerGroup(place.prefix + "-doomed")
}

func electLeaders(admin sarama.ClusterAdmin, place Place) error {
	partitions := map[string][]int32{place.filled(): {0}}
	answer, err := admin.ElectLeaders(sarama.PreferredElection, partitions)
	if err != nil {
		return err
	}
	code := answer[place.filled()][0].ErrorCode
	if code == sarama.ErrNoError || errors.Is(code, sarama.ErrElectionNotNeeded) {
		return nil
	}
	return code
}

func listReassignments(admin sarama.ClusterAdmin, place Place) error {
	moving, err := admin.ListPartitionReassignments(place.filled(), []int32{0})
	if err != nil {
		return err
	}
	return expect(len(moving), 0, "topics that move")
}

func describeLogDirs(admin sarama.ClusterAdmin, place Place) error {
	answers, err := admin.DescribeLogDirs([]int32{1})
	if err != nil {
		return err
	}
	for _, folder := range answers[1] {
		for _, topic := range folder.Topics {
			if topic.Topic == place.filled() {
				return expect(len(topic.Partitions), filledPartitions, "partitions")
			}
		}
	}
	return fmt.Errorf("%s is in none of %d directories", place.filled(), len(answers[1]))
}

func describeACLs(admin sarama.ClusterAdmin, _ Place) error {
	_, err := admin.ListAcls(sarama.AclFilter{
		ResourceType:              sarama.AclResourceAny,
		ResourcePatternTypeFilter: sarama.AclPatternAny,
		Operation:                 sarama.AclOperationAny,
		PermissionType:            sarama.AclPermissionAny,
	})
	return err
}

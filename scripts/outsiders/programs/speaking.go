// What the Go programs share: the features asked for, one JSON line for each.
//
//	PROGRAM BOOTSTRAP PREFIX FEATURE...
//
// speaking.py says what the lines mean, topics.py and groups.py what there is.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

const (
	writtenRecords   = 10
	filledPartitions = 3
	filledRecords    = 20
	knownOffset      = 7
	timeMillis       = 1_700_000_000_000 + 5000 // of offset 5 in every filled partition
	patience         = 15 * time.Second
)

// Place is where a program works, and the feature that it tries.
type Place struct {
	servers []string
	prefix  string
	feature string
}

func (p Place) topic() string  { return p.prefix + "-" + p.feature }
func (p Place) filled() string { return p.prefix + "-filled" }
func (p Place) group() string  { return p.topic() + "-group" }

// knownGroup has no members and has committed knownOffset in partition 0 of the filled topic.
func (p Place) knownGroup() string { return p.prefix + "-known" }

// Function tries one feature; its error is the client's own.
type Function func(ctx context.Context, place Place) error

// errAbsent is a feature that the client does not have; the text says what it has or lacks.
type errAbsent string

func (e errAbsent) Error() string { return string(e) }

func absent(reason string) Function {
	return func(context.Context, Place) error { return errAbsent(reason) }
}

// speak tries the features of the command line. module is the one whose version is told.
func speak(module string, functions map[string]Function) {
	say(map[string]string{"version": versionOf(module)})
	place := Place{servers: strings.Split(os.Args[1], ","), prefix: os.Args[2]}
	for _, feature := range os.Args[3:] {
		place.feature = feature
		line := map[string]string{"feature": feature}
		var none errAbsent
		err := tried(functions[feature], place)
		switch {
		case errors.As(err, &none):
			line["absent"] = err.Error()
		case errors.Is(err, context.DeadlineExceeded):
			line["error"] = fmt.Sprintf("silent for %s: %s", patience, err)
		case err != nil:
			line["error"] = err.Error()
		}
		say(line)
	}
}

func tried(function Function, place Place) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return function(ctx, place)
}

func versionOf(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, each := range info.Deps {
		if each.Path == module {
			return each.Version
		}
	}
	return "unknown"
}

func say(line map[string]string) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

// expectFilled refuses values that are not exactly those of the filled topic.
func expectFilled(found []string) error {
	var wanted []string
	for partition := range filledPartitions {
		for offset := range filledRecords {
			wanted = append(wanted, fmt.Sprintf("%d:%d", partition, offset))
		}
	}
	slices.Sort(wanted)
	slices.Sort(found)
	return expect(found, wanted, "records")
}

// expect refuses a wrong answer: the client got along, but did not get what the broker holds.
func expect(found, wanted any, what string) error {
	if fmt.Sprint(found) != fmt.Sprint(wanted) {
		return fmt.Errorf("%s: expected %v, got %v", what, wanted, found)
	}
	return nil
}

// expectAmong refuses an answer that lacks what the broker holds.
func expectAmong(wanted string, found []string, what string) error {
	if !slices.Contains(found, wanted) {
		return fmt.Errorf("%s: no %s in %v", what, wanted, found)
	}
	return nil
}

// values are the records that a feature writes.
func values(place Place) []string {
	var all []string
	for number := range writtenRecords {
		all = append(all, fmt.Sprintf("%s-%d", place.feature, number))
	}
	return all
}

// What the members of consumer groups in Go share.
//
//	PROGRAM BOOTSTRAP TOPIC GROUP
//
// A member subscribes to the topic as a member of the group. It says each value on a line of its own,
// and commits it after that. It runs until it is killed; what its library tells as an error goes to
// standard error, and the member goes on.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

const session = 6 * time.Second

type memberPlace struct {
	servers []string
	topic   string
	group   string
}

func placeOf() memberPlace {
	return memberPlace{strings.Split(os.Args[1], ","), os.Args[2], os.Args[3]}
}

func processed(value string) { fmt.Println(value) }

func trouble(err error) {
	fmt.Fprintln(os.Stderr, err)
	time.Sleep(200 * time.Millisecond)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Apache's Go client as a command: interop-go send|consume --option value …
//
// Every command writes JSON objects, one a line; the last has "event": "result" and says "ok".
// Exit code 0: a result was written (also one that is not ok); 2: the command is wrong in itself.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type fields map[string]any

type command func(arguments []string, stop <-chan struct{}) (fields, error)

// usageError says that the command line makes no sense; nothing was done.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

var commands = map[string]command{"send": send, "consume": consume}

func main() {
	rlog.SetLogLevel("error")
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		finish(nil, usageError{fmt.Sprintf("no such command: %v; there are send and consume", os.Args[1:])})
	}
	result, err := commands[os.Args[1]](os.Args[2:], stopOnStandardInput())
	finish(result, err)
}

func finish(result fields, err error) {
	switch failure := err.(type) {
	case nil:
		emitResult(result)
	case usageError:
		emit("result", fields{"ok": false, "usage": failure.text})
		os.Exit(2)
	default:
		emit("result", fields{"ok": false, "error": describe(err)})
	}
	os.Exit(0)
}

// common holds the options of both commands.
type common struct {
	namesrv, topic, group, tag string
	count                      int
	keys                       primitive.Credentials
}

func newFlags(name string) (*flag.FlagSet, *common) {
	options := &common{}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.StringVar(&options.namesrv, "namesrv", "", "host:port of name servers, `;` between them")
	flags.StringVar(&options.topic, "topic", "", "topic")
	flags.StringVar(&options.group, "group", "interop-go", "producer or consumer group")
	flags.StringVar(&options.tag, "tag", "", "tag, or tag expression of a consumer")
	flags.IntVar(&options.count, "count", 1, "how many messages")
	flags.StringVar(&options.keys.AccessKey, "access-key", "", "user that signs all requests")
	flags.StringVar(&options.keys.SecretKey, "secret-key", "", "password of this user")
	return flags, options
}

func (c *common) parse(flags *flag.FlagSet, arguments []string) error {
	if err := flags.Parse(arguments); err != nil {
		return usageError{err.Error()}
	}
	if c.namesrv == "" || c.topic == "" {
		return usageError{"--namesrv and --topic are needed"}
	}
	if flags.NArg() > 0 {
		return usageError{fmt.Sprintf("what is %v?", flags.Args())}
	}
	return nil
}

func (c *common) nameServers() []string { return strings.Split(c.namesrv, ";") }

// stopOnStandardInput returns a channel that is closed when somebody writes the line "stop".
func stopOnStandardInput() <-chan struct{} {
	stop := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			if lines.Text() == "stop" {
				close(stop)
				return
			}
		}
	}()
	return stop
}
